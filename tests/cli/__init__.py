"""Tests of `neuraldbg.cli`, mostly in processes of their own."""
