"""Which GPUs the code of a user may see in this process."""

import os

VARIABLE = "CUDA_VISIBLE_DEVICES"


def show_alone(gpus: str) -> None:
    """Have TensorFlow see these GPUs alone, comma-separated; none for an empty text. Call it before it is used."""
    os.environ[VARIABLE] = gpus
