# %% [markdown]
# # Search with early stopping
#
# A sampler proposes parameters and learns from each result; a rule stops trials that fall behind, so that most of the
# time goes to the promising ones. It takes about 20 s on two cores, and needs
# `pip install "sparktrain[tensorflow,search,pandas]"`.

# %%
import sparktrain as st

machine = st.local(slots=2)  # on a cluster pass nothing: the active Spark session is used

# %% [markdown]
# ## The training function
#
# `ctx.keras_callbacks()` does two things after each epoch: it reports the metrics, by which the rule compares trials,
# and it ends `fit` when the rule has stopped this one.


# %%
def spirals(size, seed):
    import numpy as np

    noise = np.random.default_rng(seed)
    label = noise.integers(0, 2, size)
    turn = 3 * np.sqrt(noise.random(size))
    points = np.stack([turn * np.cos(2 * turn + np.pi * label), turn * np.sin(2 * turn + np.pi * label)], axis=1)
    return points + noise.normal(0, 0.1, points.shape), label


def train(learning_rate, units, dropout, ctx):
    import keras

    model = keras.Sequential(
        [
            keras.layers.Dense(units, activation="relu"),
            keras.layers.Dropout(dropout),
            keras.layers.Dense(units, activation="relu"),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(keras.optimizers.Adam(learning_rate), loss="binary_crossentropy", metrics=["accuracy"])
    history = model.fit(
        *spirals(1000, seed=1),
        validation_data=spirals(500, seed=2),
        epochs=9,
        callbacks=ctx.keras_callbacks(),
        verbose=0,
    ).history
    return {"val_accuracy": history["val_accuracy"][-1]}


# %% [markdown]
# ## The search
#
# Distributions in place of lists: the sampler (TPE) proposes twelve cases. `ASHA` compares trials after 1 and 3 of at
# most 9 epochs, and stops those that are not among the best third. `metric` is a metric that the callbacks report.

# %%
space = {
    "learning_rate": st.loguniform(1e-4, 0.3),
    "units": st.choice([8, 32, 128]),
    "dropout": st.uniform(0.0, 0.4),
}
result = st.sweep(
    train,
    space,
    metric="val_accuracy",
    trials=12,
    stopper=st.ASHA(most=9),
    seed=1,
    name="spirals",
    spark=machine,
)
result

# %% [markdown]
# ## A kernel that restarts
#
# The run outlives the kernel. After a restart, in the middle or at any later time, execute the first cell and this one:
# finished trials keep their results, the others start again, and the sampler remembers what it has learned. In a run
# that is complete nothing is trained, and the result returns at once.

# %%
result = st.resume("sparktrain-runs/spirals", spark=machine)
result

# %% [markdown]
# Each trial in the order in which they ended, and the best so far. Trials that were stopped are grey.

# %%
result.plot.history()

# %% [markdown]
# ## What early stopping saved
#
# A stopped trial has the status `pruned`, and its result names the rule that stopped it, and why.

# %%
stopped = [trial for trial in result.trials if trial.status == "pruned"]
epochs = len(result.history())
print(
    f"{len(stopped)} of {len(result.trials)} trials were stopped: {epochs} epochs in place of {9 * len(result.trials)}"
)
print(stopped[0].pruned if stopped else "")
print(f"best: {result.best.params}")
