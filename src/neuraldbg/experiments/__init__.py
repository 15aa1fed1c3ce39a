"""Experiments: a cause is tested by running the training again with one thing changed.

This package plans the trials, runs them in processes of their own, and judges what they
show. It reads run files and declarations only; what acts on a training process lives in
`neuraldbg.torch.interventions`.
"""
