"""Hyperparameters side by side: `launch` over two lists, and a search over every combination of both.

    python examples/hyperparameters.py

The same from a shell:

    sparktrain sweep examples/hyperparameters.py:train --local --metric accuracy \\
        --zip learning_rate=0.1,0.01 --zip dropout=0.2,0.5
    sparktrain sweep examples/hyperparameters.py:train --local --metric accuracy \\
        --grid learning_rate=0.1,0.01 --grid dropout=0.2,0.5

`launch` pairs the lists by position: two trials. The grid has a trial for each combination: four. Each trains in a
process of its own, two at a time.
"""

import keras
from fashion_mnist import load

import sparktrain as st

LISTS = {"learning_rate": [0.1, 0.001], "dropout": [0.2, 0.5]}


def train(learning_rate, dropout, epochs=2):
    model = keras.Sequential(
        [
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dropout(dropout),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.SGD(learning_rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(*load("train", 12_800), batch_size=64, epochs=epochs, verbose=0)
    loss, accuracy = model.evaluate(*load("t10k", 2_000), batch_size=500, verbose=0)
    return {"accuracy": accuracy, "loss": loss}


def search(pool, **options):
    """The results of `launch` and of the grid, on agents that stay between both."""
    pairs = pool.launch(train, LISTS, metric="accuracy", **options)
    grid = pool.sweep(train, LISTS, metric="accuracy", **options)
    return pairs, grid


if __name__ == "__main__":
    with st.pool(st.local(slots=2)) as pool:  # st.pool() takes the slots of the active Spark session
        for result in search(pool):
            print(result)
