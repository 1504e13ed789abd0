"""Datasets of TensorFlow with a member's share of the rows."""
