"""How a `fit` of Keras continues after the loss of another member, whatever backend it runs on."""
