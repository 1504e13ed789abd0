"""What averages gradients and weights of a model over a ring."""
