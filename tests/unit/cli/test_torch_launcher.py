"""`python -m sparktrain.torch`: what it makes of the options of torchrun, and which it refuses before it starts any."""

from pathlib import Path

import pytest

from sparktrain.errors import FunctionError
from sparktrain.torch import main
from sparktrain.torch.launcher import REFUSED, REFUSED_FLAGS, gang_of, retries_of
from sparktrain.torch.script_runner import run_script
from sparktrain.usercode.framework_imports import framework_imports
from sparktrain.usercode.script_target import script_target
from sparktrain.usercode.serialize import pack

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "ddp.py").write_text("import layers\nimport torch\nraise RuntimeError('never run here')\n")
    (tmp_path / "layers.py").write_text("WIDTH = 5\n")
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "two parts.py").write_text("")
    package = tmp_path / "models"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "train.py").write_text("import layers\n")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rdzv-backend=c10d", "ddp.py"], "--rdzv-backend: the members of a gang meet by sparktrain's own"),
        (["--rdzv_endpoint", "h:1", "ddp.py"], "--rdzv-endpoint: the members of a gang meet"),
        (["-r", "3", "ddp.py"], "--redirects: the run directory has a log of each member: leave it out"),
        (["--no_python", "ddp.py"], "--no-python: a member is a Python process: pass a script of Python"),
        (["--nnodes", "2", "ddp.py"], "--nnodes (2): this machine is one node; pass --master"),
        (["--nnodes", "two", "ddp.py"], "--nnodes (two) must be a number of nodes or MIN:MAX"),
        (["--nnodes", "3:1", "ddp.py"], "--nnodes (3:1) must be MIN:MAX with MIN up to MAX, such as 1:3"),
        (["--nproc-per-node", "gpu", "ddp.py"], "--nproc-per-node ('gpu') must be a number"),
        (["--nproc-per-node=0", "ddp.py"], "--nproc-per-node (0) must be at least 1"),
        (["--max_restarts", "-1", "ddp.py"], "--max-restarts ('-1') must be a number of restarts"),
        (["--standalone", "--master", "yarn", "ddp.py"], "--local starts no Spark, which --master is for"),
        (["ddq.py"], "ddq.py: no such file; did you mean 'ddp.py'?"),
        (["two parts.py"], "'two parts' cannot be a module's name; rename it to two_parts.py"),
        (["broken.py"], "broken.py:1: invalid syntax; correct the line"),
        (["-m", "model.train"], "-m 'model.train': no module that Python could run"),
        (["-m", "models/train.py"], "-m 'models/train.py': no module that Python could run"),
        (["--workers", "2", "ddp.py"], "No such option: --workers"),
    ],
)
def test_what_has_no_meaning_here_is_refused_by_name(
    folder: Path, capfd: Capture, words: list[str], message: str
) -> None:
    assert main(words) == 2
    assert message in capfd.readouterr().err


def test_each_refused_option_is_known_in_both_spellings(folder: Path, capfd: Capture) -> None:
    for name in REFUSED:
        assert main([f"--{name.replace('-', '_')}", "1", "ddp.py"]) == 2
    for name in REFUSED_FLAGS:
        assert main([f"--{name}", "ddp.py"]) == 2
    errors = capfd.readouterr().err
    assert [name for name in (*REFUSED, *REFUSED_FLAGS) if f"error: --{name}: " not in errors] == []


def test_nodes_and_processes_are_members() -> None:
    assert gang_of(None, None, local=True) == {"workers": 1}
    assert gang_of("1", "3", local=True) == {"workers": 3}
    assert gang_of("2", "4", local=False) == {"workers": 8}
    assert gang_of("2:4", "2", local=False) == {"workers": 8, "min_workers": 4}
    assert gang_of("2:2", None, local=False) == {"workers": 2}
    assert retries_of("0") == {"max_retries": 0}
    assert retries_of(None) == {}


def test_a_script_travels_with_what_lies_beside_it_and_is_not_imported(folder: Path) -> None:
    target = script_target(run_script, "ddp.py", is_module=False)
    assert (target.name, target.slug) == ("ddp", "ddp")
    imports = framework_imports(target)
    assert {"torch", "layers"} <= {*imports.modules}
    assert imports.line_of("torch") == "ddp.py:2 imports torch"
    code = pack(target)
    assert code.by_reference
    assert code.function == b"sparktrain.torch.script_runner:run_script"
    for name in (b"ddp.py", b"layers.py"):
        assert name in code.archive
    module = script_target(run_script, "models.train", is_module=True)
    assert module.script == "models.train"
    assert b"models/train.py" in pack(module).archive
    (folder / "json.py").write_text("")
    with pytest.raises(FunctionError, match=r"another module is called 'json'"):
        script_target(run_script, "json.py", is_module=False)
