"""A stand-in for nvidia-smi that lists GPUs, and TensorFlow that believes in one, for machines without a GPU."""

from collections.abc import Sequence
from pathlib import Path

STAND_IN = "gpu_stand_in"
"""Module that a zygote preloads: then TensorFlow lists a GPU, and configures it, and finds none when it starts it."""

_MODULE = """\
from tensorflow.python.eager import context

made = context.context()
made._initialize_physical_devices()
gpu = context.PhysicalDevice(name="/physical_device:GPU:0", device_type="GPU")
made._physical_devices.append(gpu)
made._physical_device_to_index[gpu] = 0
made._visible_device_list.append(gpu)
made._memory_growth_map[gpu] = None
"""


def list_gpus(folder: Path, totals: Sequence[int]) -> Path:
    """Make a command nvidia-smi in `folder` that lists GPUs with so many MiB each; returns the folder."""
    rows = {
        "index": [str(index) for index in range(len(totals))],
        "index,uuid,memory.total": [f"{index}, GPU-{index}, {total}" for index, total in enumerate(totals)],
    }
    cases = ""
    for query, lines in rows.items():
        words = " ".join(f"'{line}'" for line in lines)
        cases += f"  --query-gpu={query}) printf '%s\\n' {words} ;;\n"
    command = folder / "nvidia-smi"
    command.write_text(f'#!/bin/sh\ncase "$1" in\n{cases}  *) exit 9 ;;\nesac\n')
    command.chmod(0o755)
    return folder


def write_stand_in(folder: Path) -> Path:
    """Write the module `STAND_IN` into `folder`; returns the folder."""
    (folder / f"{STAND_IN}.py").write_text(_MODULE)
    return folder
