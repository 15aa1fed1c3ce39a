"""Tests of `neuraldbg.core`."""
