"""When a zygote refuses to import Keras on a backend: it stays with the trials."""

import os
import sys
from pathlib import Path

import pytest

from sparktrain.training import own_devices
from sparktrain.training.frameworks.keras.preloads.backend_import import import_keras


def test_keras_on_pytorch_is_not_imported_beside_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_devices, "_TORCH_DEVICES", (str(tmp_path),))
    monkeypatch.delitem(sys.modules, "keras", raising=False)
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    with pytest.raises(ImportError, match="this host may have devices for PyTorch, which the import of Keras would"):
        import_keras("torch")
    assert os.environ["KERAS_BACKEND"] == "tensorflow"
    assert "keras" not in sys.modules


def test_keras_that_is_imported_keeps_its_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keras", sys)  # stands in for it
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    with pytest.raises(ImportError, match="Keras is imported already, before it was asked to run on jax"):
        import_keras("jax")
    assert os.environ["KERAS_BACKEND"] == "tensorflow"
