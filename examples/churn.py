# %% [markdown]
# # Which customers leave?
#
# Spark joins and aggregates three made-up tables of a telephone company to one of 200,000 customers. A gang of two
# processes trains a Keras model on it. Spark then scores customers that training has not seen, and writes a table.
# Nothing is downloaded, and every run has the same rows. The same cells are a notebook, `churn.ipynb`, and a program:
#
#     python examples/churn.py

# %%
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import sparktrain as st

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.sql.shuffle.partitions", 4)  # as many as this machine needs; the default is 200
    .config("spark.ui.showConsoleProgress", False)
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")

# %% [markdown]
# ## Three tables
#
# `f.rand(seed)` depends on partitions, so that a partition that Spark computes again may differ. A hash of the row's id
# never does.

# %%
CUSTOMERS, CALLS, TICKETS = 200_000, 600_000, 150_000


def uniform(seed, column="id"):
    return f.pmod(f.xxhash64(column, f.lit(seed)), f.lit(2**32)) / 2**32


people = spark.range(CUSTOMERS, numPartitions=4).select(
    f.col("id").alias("customer"),
    f.floor(8 * uniform(1)).cast("int").alias("region"),
    f.floor(18 + 60 * uniform(2)).alias("age"),
    f.floor(1 + 71 * uniform(3)).alias("months"),
    f.round(10 + 50 * uniform(4), 2).alias("price"),
)
phone_calls = spark.range(CALLS, numPartitions=4).select(
    f.floor(CUSTOMERS * uniform(5)).alias("customer"),
    (-4 * f.log(1 - uniform(6))).alias("minutes"),
    uniform(7).alias("luck"),
)
help_desk = spark.range(TICKETS, numPartitions=4).select(
    f.floor(CUSTOMERS * uniform(9)).alias("customer"),
    f.floor(1 + 4 * uniform(10)).alias("severity"),
)

# %% [markdown]
# ## One table
#
# Aggregates, joins, and the label. A model takes tensors: the numbers travel as one array column, the region as a
# column of its own, and what is null after a join is filled here. Statistics are Spark's work too.

# %%
NUMBERS = ["age", "months", "price", "calls", "minutes", "dropped", "tickets", "severity"]

usage = phone_calls.groupBy("customer").agg(
    f.count("*").alias("calls"),
    f.avg("minutes").alias("minutes"),
    f.avg((f.col("luck") < 0.3 * uniform(8, "customer")).cast("int")).alias("dropped"),
)
trouble = help_desk.groupBy("customer").agg(f.count("*").alias("tickets"), f.max("severity").alias("severity"))
table = people.join(usage, "customer", "left").join(trouble, "customer", "left").fillna(0)

wish = (
    6 * f.col("dropped")
    + 0.9 * f.col("severity")
    + f.when((f.col("price") > 35) & (f.col("minutes") < 4), 2.5).otherwise(0)
    + f.when(f.col("region").isin(2, 5), 1.5).otherwise(0)
    - 0.05 * f.col("months")
    - 2.6
)
customers = table.select(
    "customer",
    "region",
    f.array(*[f.col(name).cast("float") for name in NUMBERS]).alias("numbers"),
    (uniform(11, "customer") < 1 / (1 + f.exp(-3 * wish))).cast("int").alias("left"),
).cache()

started = time.monotonic()
counted = customers.agg(
    f.count("*").alias("rows"),
    f.avg("left").alias("left"),
    *[f.avg(f.col("numbers")[at]).alias(f"mean{at}") for at in range(len(NUMBERS))],
    *[f.var_pop(f.col("numbers")[at]).alias(f"variance{at}") for at in range(len(NUMBERS))],
).first()
print(f"table: {counted.rows:,} customers in {time.monotonic() - started:.1f} s; {counted.left:.1%} of them left")

# %% [markdown]
# ## Train
#
# Plain Keras. `ctx.dataset("train")` is the DataFrame that `data=` names below, and `to_tf` gives this process its half
# of the rows, shuffled in another order in each epoch. The lines with `ctx.` are all that differs from a program for
# one process.


# %%
def train(learning_rate, epochs, mean, variance, ctx):
    import keras

    numbers = keras.Input((len(mean),), name="numbers")
    region = keras.Input((), dtype="int32", name="region")
    scaled = keras.layers.Normalization(mean=mean, variance=variance)(numbers)
    hidden = keras.layers.Concatenate()([scaled, keras.layers.Embedding(8, 4)(region)])
    for units in (64, 32):
        hidden = keras.layers.Dense(units, activation="relu")(hidden)
    model = keras.Model([numbers, region], keras.layers.Dense(1, activation="sigmoid")(hidden))
    optimizer = ctx.distribute(keras.optimizers.Adam(ctx.scale_lr(learning_rate)))
    model.compile(optimizer, loss="binary_crossentropy", metrics=["accuracy"])

    columns = {"feature_columns": ["numbers", "region"], "label_columns": "left"}
    rows = ctx.dataset("train")
    started_at = time.monotonic()
    history = model.fit(
        rows.to_tf(batch_size=512, shuffle=True, **columns),
        validation_data=ctx.dataset("validation").to_tf(batch_size=512, **columns),
        epochs=epochs,
        callbacks=ctx.keras_callbacks(),
        verbose=0,
    ).history
    speed = epochs * rows.num_rows / (time.monotonic() - started_at)
    ctx.export(model)
    return {"accuracy": history["val_accuracy"][-1], "rows_per_second": speed}


# %% [markdown]
# sparktrain writes both DataFrames into the run directory, once, and then starts the gang. `customer` is a column that
# the model does not take: `to_tf` leaves it out.

# %%
place = uniform(12, "customer")
datasets = {"train": customers.where(place < 0.8), "validation": customers.where((place >= 0.8) & (place < 0.9))}
params = {
    "learning_rate": 0.002,
    "epochs": 4,
    "mean": [counted[f"mean{at}"] for at in range(len(NUMBERS))],
    "variance": [counted[f"variance{at}"] for at in range(len(NUMBERS))],
}
result = st.run(train, params, workers=2, data=datasets, seed=1)
print(result)

# %% [markdown]
# ## Score
#
# `st.predict` adds a column to a DataFrame: here to the tenth of the customers that the model has not seen. Its inputs
# `numbers` and `region` find the columns of their names; the other columns stay.

# %%
target = Path("sparktrain-runs", "churn-scores").resolve()
started = time.monotonic()
unseen = customers.where(place >= 0.9)
st.predict(unseen, result, output="chance").write.mode("overwrite").parquet(str(target))
seconds = time.monotonic() - started

scores = spark.read.parquet(str(target))
found = scores.agg(
    f.count("*").alias("rows"),
    f.avg(((f.col("chance") > 0.5) == (f.col("left") == 1)).cast("int")).alias("right"),
    f.avg((f.col("left") == 0).cast("int")).alias("stayed"),
).first()
scores.select("customer", "left", f.round("chance", 3).alias("chance")).orderBy(f.desc("chance"), "customer").show(5)

# %%
print(
    f"trained on {CUSTOMERS * 0.8:,.0f} customers at {result.metrics['rows_per_second']:,.0f} rows/s, by two processes"
)
print(f"scored {found.rows:,} other customers in {seconds:.1f} s, with the start of TensorFlow in Spark's workers")
print(f"accuracy {found.right:.1%}; to expect that all stay would give {found.stayed:.1%}")
print(f"scores: {target}")
print(f"model:  {result.model_path}")
spark.stop()
