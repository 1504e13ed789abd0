# %% [markdown]
# # A gang that trains on a DataFrame
#
# One model, two processes: each trains on half of the rows of a Spark DataFrame, and they average their gradients after
# each batch. Then the model adds a column to another DataFrame. It takes about 25 s on two cores, and needs
# `pip install "sparktrain[spark,tensorflow]"` and Java.

# %%
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import sparktrain as st

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.sql.shuffle.partitions", 2)
    .config("spark.ui.showConsoleProgress", False)
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")

# %% [markdown]
# ## Data
#
# Points in a square; the label is whether a point is in the ring. The features of a row are one array column, as a
# model takes them.

# %%
points = spark.range(6000, numPartitions=4).select("id", (2 * f.rand(1) - 1).alias("x"), (2 * f.rand(2) - 1).alias("y"))
radius = f.hypot("x", "y")
table = points.select(
    "id",
    f.array(f.col("x").cast("float"), f.col("y").cast("float")).alias("features"),
    radius.between(0.4, 0.8).cast("int").alias("label"),
).cache()
table.groupBy("label").count().show()

# %% [markdown]
# ## Training
#
# `ctx.dataset("train")` is the DataFrame that `data=` names below; `to_tf` gives each process its own half.
# `ctx.distribute` makes the optimizer average gradients, and `ctx.scale_lr` adapts the learning rate to the number of
# processes. With `workers=1` the same function trains alone.


# %%
def train(learning_rate, epochs, ctx):
    import keras

    model = keras.Sequential(
        [
            keras.Input((2,)),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    optimizer = ctx.distribute(keras.optimizers.Adam(ctx.scale_lr(learning_rate)))
    model.compile(optimizer, loss="binary_crossentropy", metrics=["accuracy"])
    columns = {"feature_columns": "features", "label_columns": "label", "batch_size": 64}
    history = model.fit(
        ctx.dataset("train").to_tf(shuffle=True, **columns),
        validation_data=ctx.dataset("validation").to_tf(**columns),
        epochs=epochs,
        callbacks=ctx.keras_callbacks(),
        verbose=0,
    ).history
    ctx.export(model)
    return {"accuracy": history["val_accuracy"][-1]}


# %% [markdown]
# sparktrain writes both DataFrames into the run directory, once, and starts the gang when both processes have their
# slots. If a process is lost, the gang restarts from its newest checkpoint.

# %%
data = {"train": table.where("id % 5 > 1"), "validation": table.where("id % 5 = 1")}
result = st.run(train, {"learning_rate": 0.005, "epochs": 8}, workers=2, data=data, seed=1)
result

# %% [markdown]
# ## Prediction
#
# `st.predict` adds a column, computed by the stored model in Spark's workers, to rows that training has not seen.

# %%
scored = st.predict(table.where("id % 5 = 0"), result, output="chance").cache()
scored.orderBy("id").show(5)
right = scored.select(f.avg(((f.col("chance") > 0.5) == (f.col("label") == 1)).cast("int"))).first()[0]
print(f"right: {right:.1%} of {scored.count()} rows")
spark.stop()
