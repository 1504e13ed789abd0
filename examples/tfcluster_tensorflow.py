"""A program for TensorFlowOnSpark with InputMode.TENSORFLOW: members read their data themselves. With TensorBoard.

    python examples/tfcluster_tensorflow.py --images 12800 --model /tmp/fashion/model --logs /tmp/fashion/logs

Only its import line differs from a program of 2020: `from tensorflowonspark import TFCluster`. The members train one
Keras model under a strategy of TensorFlow, worker 0 writes the curves and saves the model, and the URL of TensorBoard
is printed.
"""

import argparse

from pyspark.sql import SparkSession

from sparktrain.tensorflowonspark import TFCluster


def main_fun(args, ctx):
    import keras
    import tensorflow as tf
    from fashion_mnist import load

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Flatten(),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dense(10, activation="softmax"),
            ]
        )
        model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", metrics=["accuracy"])
    images, labels = load("train", args.images)
    is_chief = ctx.task_index == 0
    curves = [keras.callbacks.TensorBoard(args.logs)] if is_chief else []
    model.fit(images, labels, batch_size=64 * ctx.num_workers, epochs=args.epochs, callbacks=curves, verbose=0)
    if is_chief:
        model.save(f"{args.model}.keras")


def start(sc, args, **options):
    """Start the cluster: `sc` is a SparkContext, or what sparktrain trains on without Spark."""
    return TFCluster.run(
        sc, main_fun, args, args.cluster_size, num_ps=0, tensorboard=True, log_dir=args.logs,
        input_mode=TFCluster.InputMode.TENSORFLOW, **options,
    )  # fmt: skip


def arguments(line=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--cluster_size", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--images", type=int, default=12_800)
    parser.add_argument("--model", default="/tmp/fashion/model")
    parser.add_argument("--logs", default="/tmp/fashion/logs")
    return parser.parse_args(line)


if __name__ == "__main__":
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    asked = arguments()
    cluster = start(spark.sparkContext, asked)
    print(f"TensorBoard: {cluster.tensorboard_url()}")
    cluster.shutdown()
    print(f"model: {asked.model}.keras")
    spark.stop()
