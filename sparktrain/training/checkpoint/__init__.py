"""Saving and resuming: a model's state as tensors in files."""
