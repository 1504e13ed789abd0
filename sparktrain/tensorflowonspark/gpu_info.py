"""GPUs by the names of TensorFlowOnSpark's `gpu_info`: those of this member's slot, and none that another one has."""

from sparktrain.config.param_values import described
from sparktrain.errors import ResourceError, SpecError
from sparktrain.training.own_devices import gpus_here

MAX_RETRIES = 3
"""Of the original, which waits for GPUs that others use: a slot has its own from its start."""
AS_STRING = "string"
AS_LIST = "list"


def is_gpu_available() -> bool:
    """Whether this process may use a GPU. Blocks on `nvidia-smi` where the environment names none."""
    return bool(gpus_here())


def get_gpus(num_gpu: int = 1, worker_index: int = -1, format: str = AS_STRING) -> str | list[str]:
    """The first `num_gpu` GPUs of this process, comma-separated, or as a list with `format="list"`.

    `worker_index` has no effect: no two members have the same GPU. Blocks on `nvidia-smi` where the environment names
    none. Raises ResourceError where there are fewer.
    """
    if format not in (AS_STRING, AS_LIST):
        raise SpecError(f"format is {described(format)}; pass {AS_STRING!r} or {AS_LIST!r}")
    gpus = list(gpus_here())
    if len(gpus) < num_gpu:
        raise ResourceError(
            f"get_gpus({num_gpu}) wants more GPUs than this process has ({len(gpus)}): give each slot more of them, "
            "with spark.task.resource.gpu.amount or fewer slots"
        )
    chosen = gpus[:num_gpu]
    return chosen if format == AS_LIST else ",".join(chosen)
