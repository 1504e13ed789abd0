"""Chooses the backend of Keras in a process that predicts, and gives it its cores and its GPU."""

import os
from collections.abc import Callable
from pathlib import Path

from sparktrain.base import deferred_wrappers
from sparktrain.base.optional_packages import is_installed
from sparktrain.config.environment import JAX, KERAS_BACKEND, TENSORFLOW, TORCH, keras_backend
from sparktrain.errors import EnvironmentMismatchError

CPU = "/CPU:0"
_DEVICES = "CUDA_VISIBLE_DEVICES"


def set_up(cpus: int, gpu: str | None, installed: Callable[[str], bool] = is_installed) -> str:
    """Give Keras so many threads, and the GPU at this address of Spark, if any; the device for `LoadedModel`.

    Keras runs on the backend that the environment or its file names, else on TensorFlow, and without that on JAX or
    PyTorch. The device is empty where that is not TensorFlow. Raises EnvironmentMismatchError when the backend is not
    installed, or does not see the GPU.
    """
    deferred_wrappers.defer()
    backend = _backend(installed)
    if backend == TENSORFLOW:
        return set_up_tensorflow(cpus, gpu)
    os.environ.setdefault("OMP_NUM_THREADS", str(cpus))
    os.environ.setdefault("PJRT_NPROC", str(cpus))  # of JAX
    if gpu is None:
        os.environ.setdefault(_DEVICES, "")
    elif gpu.isdecimal() and len(list(Path("/dev").glob("nvidia[0-9]*"))) > 1:
        # In a container that shows one GPU it has number 0, whatever its address on the host is.
        os.environ.setdefault(_DEVICES, gpu)
    return ""


def _backend(installed: Callable[[str], bool]) -> str:
    """The backend that Keras will run on, for which the environment is set."""
    setting = keras_backend(os.environ)
    if setting is not None:
        backend, place = setting
        if not installed(backend):
            raise EnvironmentMismatchError(
                f"{place} has Keras run on {backend}, which is not installed on host {os.uname().nodename}: install "
                f"it there, or choose another backend by spark.executorEnv.{KERAS_BACKEND}"
            )
        return backend
    available = [name for name in (TENSORFLOW, JAX, TORCH) if installed(name)]
    if not available:
        raise EnvironmentMismatchError(
            f"Keras needs TensorFlow, JAX or PyTorch, and host {os.uname().nodename} has none: install one of the "
            "extras sparktrain[tensorflow], sparktrain[jax] and sparktrain[torch] there"
        )
    if available[0] != TENSORFLOW:
        os.environ[KERAS_BACKEND] = available[0]
    return available[0]


def set_up_tensorflow(cpus: int, gpu: str | None, installed: Callable[[str], bool] = is_installed) -> str:
    """As `set_up`, for models that TensorFlow alone has. Raises EnvironmentMismatchError where it is not installed."""
    if not installed(TENSORFLOW):
        raise EnvironmentMismatchError(
            f"a SavedModel needs TensorFlow, which host {os.uname().nodename} does not have: install "
            "sparktrain[tensorflow] there, or export the model as a .keras file, which JAX and PyTorch predict with"
        )
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    try:
        # Spark's task has these cores: TensorFlow would take all of the host in each of its workers.
        tf.config.threading.set_intra_op_parallelism_threads(cpus)
        tf.config.threading.set_inter_op_parallelism_threads(cpus)
        if gpu is None:
            tf.config.set_visible_devices([], "GPU")
        for device in gpus if gpu is not None else ():
            tf.config.experimental.set_memory_growth(device, True)
    except RuntimeError:
        pass  # another function of this worker has used TensorFlow before: it has chosen
    if gpu is None:
        return CPU
    # In a container that shows one GPU it has number 0, whatever its address on the host is.
    index = int(gpu) if gpu.isdecimal() and len(gpus) > 1 else 0
    if index >= len(gpus):
        raise EnvironmentMismatchError(
            f"Spark assigns GPU {gpu} to the task, and TensorFlow sees {len(gpus)} GPUs: install tensorflow[and-cuda] "
            "on the executors, or predict in a session without spark.task.resource.gpu.amount"
        )
    return f"/GPU:{index}"
