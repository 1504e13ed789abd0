"""Calls that differ between versions of TensorFlow, by the names of TensorFlowOnSpark's `compat`."""

from typing import Any


def export_saved_model(model: Any, export_dir: str, is_chief: bool = False) -> None:
    """Export a built Keras model as a SavedModel, in the chief alone; other members return at once.

    Keras 3 has no `model.save(..., save_format="tf")`, which the original called. The signature `serving_default` has
    the names that Keras 2 gave it: `dense_input` and `dense` for a Sequential model of the one layer `dense`,
    and the names of the input and output layers of a functional model. `export_dir` is a folder, a path or a
    URL of any store; an earlier export there is replaced. Blocks until it is written. Raises SpecError for a model that
    is not built, and OSError when the store fails.
    """
    if not is_chief:
        return
    from sparktrain.ml.inference.saved_model_export import export

    export(model, export_dir)


def disable_auto_shard(options: Any) -> None:
    """Set in `tf.data.Options` that a strategy leaves a dataset as it is: each member has rows of its own."""
    import tensorflow as tf

    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF


def is_gpu_available() -> bool:
    """Whether TensorFlow sees a GPU in this process; it initialises none."""
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))
