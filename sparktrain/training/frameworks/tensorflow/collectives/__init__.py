"""Rings of TensorFlow and of Horovod."""
