"""How a `fit` on TensorFlow continues after the loss of another member."""
