"""Two plain PyTorch training scripts, with faults that a flag switches in.

They know nothing of NeuralDBG: it watches them from outside, as it would watch a
stranger's script. Each runs by itself too:

    python -m neuraldbg.demos.char_gpt --fault lr_too_high
    python -m neuraldbg.demos.digits_cnn --fault saturating_activation

This package itself imports nothing, so that listing the demos needs no PyTorch.
"""
