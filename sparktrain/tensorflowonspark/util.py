"""Helpers by the names of TensorFlowOnSpark's `util`."""

import os
import socket
from collections.abc import Sequence
from typing import Any, Literal

from sparktrain.tensorflowonspark import gpu_info
from sparktrain.training.own_devices import show_alone

_REMOVED = {
    "write_executor_id": "a member knows its number: ctx.executor_id",
    "read_executor_id": "a member knows its number: ctx.executor_id",
}
_ELSEWHERE = ("192.0.2.1", 9)
"""An address of RFC 5737, to which no packet is sent."""


def __getattr__(name: str) -> Any:
    why = _REMOVED.get(name)
    raise AttributeError(
        f"tensorflowonspark.util has no attribute {name!r}" if why is None else f"util.{name} is gone: {why}"
    )


def single_node_env(num_gpus: int = 1, worker_index: int = -1, nodes: Sequence[str] = ()) -> None:
    """Have TensorFlow in this process see `num_gpus` of its GPUs, or none where there are none. Call it before an op.

    `worker_index` and `nodes` have no effect: slots have GPUs of their own. Raises ResourceError where there are fewer.
    """
    show_alone(str(gpu_info.get_gpus(num_gpus)) if num_gpus > 0 and gpu_info.is_gpu_available() else "")


def get_ip_address() -> str:
    """The address of this host from which it reaches others; 127.0.0.1 without a network. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def find_in_path(path: str, file: str) -> str | Literal[False]:
    """The first file of this name in the folders of `path`, which `:` separates; False where there is none."""
    places = (os.path.join(folder, file) for folder in path.split(os.pathsep))
    return next((candidate for candidate in places if os.path.isfile(candidate)), False)
