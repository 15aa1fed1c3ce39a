"""Tests of `neuraldbg.report`."""
