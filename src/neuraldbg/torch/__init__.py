"""The Compiler-Aware Monitor: the spoke that watches PyTorch."""
