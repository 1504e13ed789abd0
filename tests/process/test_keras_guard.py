"""A member of a gang refuses every backend of Keras but TensorFlow as soon as it is asked for, or Keras has it."""

from pathlib import Path
from typing import Any

import pytest

from sparktrain.config.backends import Backend
from sparktrain.state.outcome import FailureKind
from tests.process.harness import Bench

KERAS = """
import os
def backend():
    return os.environ.get("KERAS_BACKEND", "torch" if "KERAS_HOME" in os.environ else "tensorflow")
"""
PACKAGE = """
class utils:
    set_random_seed = staticmethod(lambda seed: None)
"""
CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "set at run time": ({}, "import os\nname = 'ja' + 'x'\nos.environ['KERAS_BACKEND'] = name\n", "asked_for.py:3 in "),
    "inherited": ({"KERAS_BACKEND": "jax"}, "import keras.src.backend.config\n", "the variable KERAS_BACKEND "),
    "a file of Keras": ({"KERAS_HOME": "HOME"}, "import keras.src.backend.config\n", "keras.json "),
}


@pytest.mark.parametrize(("env", "source", "place"), CASES.values(), ids=CASES)
async def test_a_gang_is_refused(bench: Bench, tmp_path: Path, env: dict[str, str], source: str, place: str) -> None:
    (tmp_path / "keras/src/backend").mkdir(parents=True)
    for package in ("keras", "keras/src", "keras/src/backend"):
        (tmp_path / package / "__init__.py").write_text(PACKAGE)
    (tmp_path / "keras/src/backend/config.py").write_text(KERAS)
    (tmp_path / "keras.json").write_text('{"backend": "torch"}')
    (tmp_path / "asked_for.py").write_text(f"{source}def train():\n    return 1\n")
    given = {name: value.replace("HOME", str(tmp_path)) for name, value in env.items()}
    changes = {"sys_path": (str(tmp_path),), "env": given, "backend": Backend.TENSORFLOW}

    refused = await bench.run("asked_for:train", size=2, **changes)
    assert refused.failure.kind is FailureKind.EXCEPTION
    assert place in refused.failure.summary
    assert "and the members of a gang train by TensorFlow" in refused.failure.summary
    assert (await bench.run("asked_for:train", **changes)).metrics == {"result": 1.0}
