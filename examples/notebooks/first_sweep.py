# %% [markdown]
# # A first sweep
#
# Six small Keras models learn to separate two moons, two models at a time. You see how a training function gets its
# parameters, how the run is shown while it trains, and what its result holds. It takes about 20 s on two cores, and
# needs `pip install "sparktrain[tensorflow,pandas]"`.

# %%
import sparktrain as st

machine = st.local(slots=2)

# %% [markdown]
# `st.local` trains in processes of this machine, without Spark. On a cluster pass nothing: sparktrain then uses the
# active Spark session, and everything below stays as it is.
#
# ## The training function
#
# It is ordinary Keras. sparktrain calls it once for each trial, in a process of its own, with one value of each
# parameter. `ctx` is the link back: its callbacks report the metrics of each epoch, and `ctx.export` stores the model
# with the run. What the function returns is the trial's result.


# %%
def moons(size, seed):
    import numpy as np

    noise = np.random.default_rng(seed)
    label = noise.integers(0, 2, size)
    angle = np.pi * noise.random(size) + np.pi * label
    points = np.stack([np.cos(angle) + label, np.sin(angle) + 0.3 * label], axis=1)
    return points + noise.normal(0, 0.15, points.shape), label


def train(learning_rate, units, ctx):
    import keras

    hidden = keras.layers.Dense(units, activation="relu")
    model = keras.Sequential([hidden, keras.layers.Dense(1, activation="sigmoid")])
    model.compile(keras.optimizers.Adam(learning_rate), loss="binary_crossentropy", metrics=["accuracy"])
    history = model.fit(
        *moons(600, seed=1),
        validation_data=moons(300, seed=2),
        epochs=10,
        callbacks=ctx.keras_callbacks(),
        verbose=0,
    ).history
    ctx.export(model)
    return {"accuracy": history["val_accuracy"][-1]}


# %% [markdown]
# ## The sweep
#
# Lists make a grid: each learning rate with each number of units. `metric` decides which trial is the best; sparktrain
# knows that more accuracy is better, and prints so.
#
# Press **Interrupt** in the middle, if you like: the trials that run end, and finished trials keep their results.
# Because the run has a name, the same cell then continues it. When all trials are there, the cell returns them without
# training.

# %%
result = st.sweep(
    train,
    {"learning_rate": [0.3, 0.03, 0.003], "units": [4, 32]},
    metric="accuracy",
    name="first-sweep",
    seed=1,
    spark=machine,
)
result

# %% [markdown]
# ## The result
#
# `result.best` is the trial with the highest accuracy. `result.to_pandas()` has one row for each trial,
# `result.history()` one for each epoch of each trial.

# %%
print(result.best.params, result.best.metrics)
result.history().groupby("trial").last()[["step", "loss", "val_accuracy"]]

# %% [markdown]
# `result.plot` draws the views of the run: `history()`, `parallel()`, `curves()`, `timeline()` and `importance()`.

# %%
result.plot.curves()

# %% [markdown]
# Everything is in the run directory, so another kernel, or a colleague, can open it later: without Spark, and without
# training anything.

# %%
stored = st.load(result.directory)
print(stored.best.read_log(tail=5))
print(f"model: {stored.best.model_path}")
