"""A program for TensorFlowOnSpark with InputMode.SPARK: an RDD feeds training, and another one is answered.

    python examples/tfcluster_spark.py --images 12800 --model /tmp/fashion/fed

Only its import line differs from a program of 2020: `from tensorflowonspark import TFCluster`. The first cluster trains
on the rows of an RDD, the second one predicts a class for each row of another RDD.
"""

import argparse

from pyspark.sql import SparkSession

from sparktrain.tensorflowonspark import TFCluster

BATCH = 64


def train_fun(args, ctx):
    import keras
    import numpy as np

    feed = ctx.get_data_feed(train_mode=True)
    model = keras.Sequential(
        [
            keras.Input((784,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", metrics=["accuracy"])
    curves = keras.callbacks.TensorBoard(args.logs, update_freq=20)

    def batches():
        while not feed.should_stop():
            rows = feed.next_batch(BATCH)
            if rows:
                images, labels = zip(*rows, strict=True)
                yield tensor_of(images), np.array(labels)

    model.fit(batches(), callbacks=[curves], verbose=0)
    model.save(f"{args.model}.keras")


def predict_fun(args, ctx):
    import keras

    model = keras.saving.load_model(f"{args.model}.keras")
    feed = ctx.get_data_feed(train_mode=False)
    while not feed.should_stop():
        images = feed.next_batch(500)
        if images:
            feed.batch_results(model(tensor_of(images)).numpy().argmax(axis=1).tolist())


def tensor_of(images):
    """Images of 784 bytes each as floats (images, 784), from 0 to 1."""
    import numpy as np

    return np.frombuffer(b"".join(images), "uint8").reshape(-1, 784).astype("float32") / 255


def rows_of(sc, part, count):
    """An RDD of images, 784 bytes each, with their classes."""
    from fashion_mnist import load

    images, labels = load(part, count)
    pixels = [(255 * image).round().astype("uint8").tobytes() for image in images]
    return sc.parallelize(list(zip(pixels, labels.tolist(), strict=True)), max(2, count // 500))


def train(sc, args):
    """Train on the rows of an RDD, and print the URL of TensorBoard."""
    cluster = TFCluster.run(
        sc, train_fun, args, 1, num_ps=0, tensorboard=True, log_dir=args.logs, input_mode=TFCluster.InputMode.SPARK
    )
    print(f"TensorBoard: {cluster.tensorboard_url()}")
    cluster.train(rows_of(sc, "train", args.images), num_epochs=args.epochs)
    cluster.shutdown()


def accuracy(sc, args):
    """Predict a class for each row of another RDD: the share that is right."""
    cluster = TFCluster.run(sc, predict_fun, args, 1, num_ps=0, input_mode=TFCluster.InputMode.SPARK)
    tests = rows_of(sc, "t10k", 2_000).cache()
    found = cluster.inference(tests.keys()).collect()  # in the order of the rows
    cluster.shutdown()
    return sum(one == right for one, right in zip(found, tests.values().collect(), strict=True)) / len(found)


def arguments(line=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--images", type=int, default=12_800)
    parser.add_argument("--model", default="/tmp/fashion/fed")
    parser.add_argument("--logs", default="/tmp/fashion/fed-logs")
    return parser.parse_args(line)


if __name__ == "__main__":
    spark = SparkSession.builder.master("local[3]").getOrCreate()
    asked = arguments()
    train(spark.sparkContext, asked)
    print(f"accuracy: {accuracy(spark.sparkContext, asked):.3f}")
    spark.stop()
