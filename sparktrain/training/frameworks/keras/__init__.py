"""What a gang adds to Keras: callbacks, learning rates, losses, and the stages of several fits."""
