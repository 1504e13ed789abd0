"""Finds the signature of a model in a process of its own, and keeps it beside the model on this host."""

import subprocess
import sys
from pathlib import Path

from sparktrain.errors import DataError, InfraError
from sparktrain.ml.inference.model_file import FETCHED, ModelFile
from sparktrain.ml.inference.model_folder import ModelFolder
from sparktrain.ml.inference.model_signature import ModelSignature

SIGNATURE = "signature.json"
TIMEOUT_S = 300.0
"""How long a process may import TensorFlow and load the model."""
REFUSED = 3
"""Exit code of the process when the model cannot be used: its stderr ends with the reason."""


def signature_in(model: ModelFile, folder: ModelFolder | None = None) -> ModelSignature:
    """The signature of the model. Blocks for seconds the first time on this host, in which a process loads the model.

    Raises DataError for a model that cannot predict rows, InfraError when the process fails otherwise.
    """
    held = folder if folder is not None else ModelFolder.hold(model.sha256)
    try:
        model.fetch(held)
        path = held.file(SIGNATURE, lambda answer: _ask(model, held.path / FETCHED, answer))
        return ModelSignature.decoded(path.read_bytes())
    finally:
        if folder is None:
            held.release()


def _ask(model: ModelFile, path: Path, answer: Path) -> None:
    command = [sys.executable, "-m", "sparktrain.ml.inference", str(path), str(answer), *model.modules]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise InfraError(
            f"the model {model.url} was not loaded within {TIMEOUT_S:g} s: call again when the host has less to do"
        ) from None
    if process.returncode == 0:
        return
    reason = next((line for line in reversed(process.stderr.splitlines()) if line.strip()), "it printed nothing")
    if process.returncode == REFUSED:
        raise DataError(f"the model {model.url} cannot be used: {reason}")
    raise InfraError(
        f"the process that loads the model {model.url} ended with exit code {process.returncode} ({reason}): check the "
        "memory of the host, and load the model with keras.saving.load_model"
    )
