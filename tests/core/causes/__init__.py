"""Tests of `neuraldbg.core.causes`."""
