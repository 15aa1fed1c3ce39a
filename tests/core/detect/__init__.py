"""Tests of `neuraldbg.core.detect`."""
