"""`import tensorflowonspark` gives the modules of this package after `install()`, and runs take that along."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
STUB = "tensorflowonspark/__init__.py"


def found(case: str, folder: Path) -> Any:
    """What a process of its own finds, where `folder` may have another `tensorflowonspark`."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.process.tensorflowonspark_modules", case],
        env={"PYTHONPATH": f"{folder}:{ROOT}", "PATH": ""},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """A folder with another `tensorflowonspark`."""
    (tmp_path / "tensorflowonspark").mkdir()
    (tmp_path / STUB).write_text("OWN = True\n")
    (tmp_path / "tensorflowonspark" / "TFNode.py").write_text("")
    return tmp_path


def test_imports_give_our_modules_under_their_own_names(tmp_path: Path) -> None:
    added, same, name, pickled, gone, reason = found("imports", tmp_path)
    assert added == 0  # a second install() changes nothing
    assert same
    assert name == "sparktrain.tensorflowonspark.util"
    assert pickled
    assert gone == "sparktrain.tensorflowonspark.TFManager"
    assert reason.startswith("Gone: the ends of partitions")


def test_what_is_gone_says_why(tmp_path: Path) -> None:
    no_module, no_name, node, reservation, manager = found("refused", tmp_path)
    assert no_module == "ModuleNotFoundError: No module named 'tensorflowonspark.nothing'"
    assert no_name.startswith("ImportError: cannot import name 'nothing' from 'sparktrain.tensorflowonspark'")
    assert node.startswith("AttributeError: tensorflowonspark.TFSparkNode.run is gone: members are processes of")
    assert "call cluster.shutdown() to end a cluster" in reservation
    assert "ctx.mgr is a handle of the member" in manager


def test_members_get_a_stub_with_the_code(tmp_path: Path) -> None:
    before, after = found("shipped", tmp_path)
    assert STUB not in before
    assert STUB in after


def test_an_import_before_it_is_refused(original: Path) -> None:
    message = found("late", original)
    assert message.startswith(f"tensorflowonspark was imported from {original / STUB} before install()")
    assert message.endswith("call install() before the first import of it")


def test_it_prevails_over_an_installed_one_and_says_so(original: Path) -> None:
    name, warned, shipped = found("both", original)
    assert name == "sparktrain.tensorflowonspark"
    assert warned == (
        f"tensorflowonspark is installed at {original / STUB}, and imports of it get sparktrain.tensorflowonspark: "
        "uninstall it, or leave install() out to use it\n"
    )
    assert [each for each in shipped if each.startswith("tensorflowonspark/")] == [STUB]


def test_a_program_runs_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("import tensorflowonspark\nNAME = tensorflowonspark.__name__\n")
    program = tmp_path / "program.py"
    program.write_text("import sys\nimport beside\nif __name__ == '__main__':\n    print(beside.NAME, sys.argv[1:])\n")
    command = [sys.executable, "-m", "sparktrain.tensorflowonspark", str(program), "--epochs", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "sparktrain.tensorflowonspark ['--epochs', '2']\n"
    missing = subprocess.run(command[:3], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert missing.stderr == "usage: python -m sparktrain.tensorflowonspark PROGRAM.py [ARGUMENTS]\n"
