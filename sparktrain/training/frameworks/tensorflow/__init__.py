"""TensorFlow, and Horovod for it."""
