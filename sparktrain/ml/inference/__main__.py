"""Writes the signature of a model for its driver: `python -m sparktrain.ml.inference MODEL.keras ANSWER MODULE...`."""

import sys
from pathlib import Path

from sparktrain.errors import SparktrainError
from sparktrain.ml.inference.backend_setup import set_up
from sparktrain.ml.inference.loaded_model import LoadedModel
from sparktrain.ml.inference.signature_of_file import REFUSED


def main(model: str, answer: str, *modules: str) -> int:
    """The exit code."""
    try:
        device = set_up(1, None)
        Path(answer).write_bytes(LoadedModel(Path(model), device, modules).signature().encoded())
    except SparktrainError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
