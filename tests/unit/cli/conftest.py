"""The edge of the command line, and a training function."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from sparktrain.driver.engines.nursery_process import NurseryProcess
from tests.unit.cli.edge import Edge


@pytest.fixture
def edge(monkeypatch: pytest.MonkeyPatch) -> Edge:
    made = Edge()
    homes = {
        "sparktrain.driver.prepare.checked_call": ("compose",),
        "sparktrain.driver.prepare.stored_call": ("compose_again",),
        "sparktrain.driver.continuation.forecast": ("forecast",),
        "sparktrain.driver.launch": ("launch",),
        "sparktrain.driver.finish": ("run_end",),
        "sparktrain.cluster.spark_session": ("local_session",),
        "sparktrain.driver.engines.selection": ("engine_of",),
    }
    for home, names in homes.items():
        module = ModuleType(f"fake {home}")
        for name in names:
            setattr(module, name, getattr(made, name))
        monkeypatch.setitem(sys.modules, home, module)
    monkeypatch.setattr(NurseryProcess, "start", made.start_nursery)
    monkeypatch.setattr(NurseryProcess, "wait", made.wait_for_nursery)
    return made


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A training function, in a file of its own name, for a module is imported once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"train_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text("print('a module that talks')\ndef train(lr, dropout=0.5):\n    return lr\n")
    return f"{name}.py:train"
