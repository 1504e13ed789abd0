"""Functions for tests of `sparktrain.ml`, in a module that drivers and executors import."""

from typing import Any


def build(units: int = 4, lr: float = 0.05) -> Any:
    """A compiled regression model of three numbers."""
    import keras

    layers = [keras.Input((3,)), keras.layers.Dense(units, activation="relu"), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.Adam(lr), "mse")
    return model


def classes(count: int) -> Any:
    """A classifier that is not compiled, of the vector `features`."""
    import keras

    inputs = keras.Input((3,), name="features")
    return keras.Model(inputs, keras.layers.Dense(count, activation="softmax")(inputs))


def broken(units: int) -> Any:
    """A function that fails for some hyperparameters."""
    if units > 4:
        raise ValueError(f"{units} units are too many")
    return build(units)
