"""Streams in a member: feeders send rows over Arrow Flight, and the training function takes them."""
