"""TensorFlow's own strategies and clusters, for members of a gang."""
