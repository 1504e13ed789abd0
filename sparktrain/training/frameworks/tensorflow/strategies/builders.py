"""Creates TensorFlow's strategies. Imports TensorFlow and Keras: import it only to build a strategy."""

import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from sparktrain.config.param_values import described, did_you_mean, shown
from sparktrain.errors import SpecError, StrategyError
from sparktrain.training.frameworks.tensorflow.strategies import workarounds

_TF_CONFIG = "TF_CONFIG"
_COMMUNICATION = ("ring", "nccl")


def multi_worker(tf_config: str, communication: str | None = None) -> tf.distribute.Strategy:
    """All devices of all members in step. Blocks until all members call. Raises SpecError; RuntimeError after an op."""
    gpus = tf.config.list_physical_devices("GPU")
    chosen = communication or ("nccl" if gpus else "ring")
    if chosen not in _COMMUNICATION:
        allowed = ", ".join(map(repr, _COMMUNICATION))
        raise SpecError(
            f"communication ({shown(chosen)}) must be one of {allowed}{did_you_mean(chosen, _COMMUNICATION)}"
        )
    if chosen == "nccl" and not gpus:
        raise StrategyError("communication='nccl' is for GPUs, and this member has none: leave it out, or pass 'ring'")
    implementation = tf.distribute.experimental.CommunicationImplementation[chosen.upper()]
    hints = tf.distribute.experimental.CommunicationOptions(implementation=implementation)
    os.environ[_TF_CONFIG] = tf_config
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=hints)
    workarounds.install()
    workarounds.keep_whole(strategy)
    return strategy


def parameter_server(tf_config: str, variable_partitioner: Callable[..., Any] | None = None) -> tf.distribute.Strategy:
    """The chief's strategy with its servers. Blocks until all of them serve. Raises SpecError."""
    if variable_partitioner is not None and not callable(variable_partitioner):
        raise SpecError(
            f"variable_partitioner is {described(variable_partitioner)}, a partitioner is expected, such as "
            "tf.distribute.experimental.partitioners.MinSizePartitioner()"
        )
    os.environ[_TF_CONFIG] = tf_config
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner)
    workarounds.install()
    if variable_partitioner is not None:
        workarounds.refuse_keras_variables(strategy)
    return strategy


def mirrored(devices: int | list[str] | None = None) -> tf.distribute.Strategy:
    """The devices of this process in step: by default all GPUs, or the CPU. Raises SpecError."""
    strategy = tf.distribute.MirroredStrategy(_devices(devices))
    workarounds.install()
    return strategy


def central_storage(devices: int | list[str] | None = None) -> tf.distribute.Strategy:
    """The devices of this process in step, with the variables on the CPU. Raises SpecError."""
    strategy = CentralStorage(compute_devices=_devices(devices), parameter_device="CPU:0")
    workarounds.install()
    return strategy


def one_device(device: str | None = None) -> tf.distribute.Strategy:
    """One device: by default the first GPU, or the CPU. Raises SpecError."""
    if device is not None and not isinstance(device, str):
        raise SpecError(f"device is {described(device)}, a name such as 'GPU:0' is expected")
    return tf.distribute.OneDeviceStrategy(device or _devices(1)[0])


class CentralStorage(tf.distribute.experimental.CentralStorageStrategy):  # type: ignore[misc]  # TensorFlow has no types
    """TensorFlow's strategy, with a readable error for layers that have a state of their own."""

    def run(self, fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        """See base class. Raises StrategyError if a layer changes a variable of its own, with several devices."""
        try:
            return super().run(fn, args, kwargs, options)
        except ValueError as error:
            if "must specify an aggregation method" not in str(error):
                raise
            raise workarounds.passing(
                StrategyError(
                    "a layer changes a variable of its own (BatchNormalization its averages, Dropout its generator's "
                    "state), which fails under strategy 'central_storage' with several devices; use 'mirrored', or a "
                    "model without such layers"
                )
            ) from error


def _devices(devices: int | list[str] | None) -> list[str]:
    """Names of the devices; without a GPU it splits the CPU into logical ones."""
    gpus = len(tf.config.list_physical_devices("GPU"))
    if isinstance(devices, list | tuple) and devices and all(isinstance(device, str) for device in devices):
        return list(devices)
    if devices is None:
        devices = max(gpus, 1)
    if type(devices) is not int or devices < 1:
        raise SpecError(
            f"devices is {described(devices)}; pass how many, 1 or more, or a list of names such as 'GPU:0'"
        )
    if not gpus:
        return _of_cpu(devices)
    if devices > gpus:
        raise StrategyError(f"devices={devices}, and this member has {gpus} GPU(s): pass {gpus} or less, or names")
    return [f"GPU:{number}" for number in range(devices)]


def _of_cpu(count: int) -> list[str]:
    if count > 1:
        try:
            config = tf.config.LogicalDeviceConfiguration()
            tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], [config] * count)
        except RuntimeError:
            # TensorFlow is initialised: its logical devices stay, and may be enough.
            if len(tf.config.list_logical_devices("CPU")) < count:
                raise
    return [f"CPU:{number}" for number in range(count)]
