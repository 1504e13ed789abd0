"""Modules that zygotes import to have Keras on another backend than TensorFlow."""
