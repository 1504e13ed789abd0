"""Packages that code names in texts travel: their modules are imported by names that only a run knows."""

import importlib.util
import io
import os
import sys
import zipfile
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from sparktrain.config.gang_spec import ALONE
from sparktrain.driver.continuation.program import FunctionProgram
from sparktrain.errors import SpecError
from sparktrain.protocol import code_origins
from sparktrain.protocol.messages import Code
from sparktrain.search.space import grid
from sparktrain.training.source_homes import Homes
from sparktrain.usercode import module_zip
from sparktrain.usercode.serialize import pack, preload_choice
from sparktrain.usercode.target import resolve
from tests.unit.scripted import cell

HEAD = "import importlib\nfrom importlib import import_module\nNAMES = {'a': 'dynpack.cnn'}\nBASE = 'dynpack'\n"
SENT = {
    "importlib.import_module('dynpack.' + k)": "dynpack/cnn.py",
    "importlib.import_module(f'dynpack.{k}')": "dynpack/cnn.py",
    "import_module('dynpack.{}'.format(k))": "dynpack/cnn.py",
    "import_module('dynpack.%s' % k)": "dynpack/cnn.py",
    "__import__('dynpack.' + k)": "dynpack/cnn.py",
    "import_module(NAMES['a'])": "dynpack/cnn.py",
    "import_module(BASE + '.' + k)": "dynpack/cnn.py",
    "import_module('.' + k, 'dynpack')": "dynpack/cnn.py",
    "import_module('dynspace.' + k)": "dynspace/cnn.py",
    "[import_module(each) for each in ('dynpack.cnn', 'x.y')]": "dynpack/cnn.py",
    "library({'_target_': 'dynpack.cnn.Net'})": "dynpack/cnn.py",
    "library('dynpack.cnn:Net')": "dynpack/cnn.py",
}
ALL = {"dynlone.py", "dynpack/__init__.py", "dynpack/cnn.py"}
NOT_SENT = {
    "library('dynpack')": "no import by name",
    "library('dynpack.csv')": "no such module",
    "import_module('dyndata.' + k)": "no modules in that folder",
    "library('dynpack. It is a package')": "a sentence",
}


@pytest.fixture(autouse=True)
def _beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("dynpack/__init__.py", "dynpack/cnn.py", "dynspace/cnn.py", "dyndata/rows.csv", "dynlone.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("import pandas\n" if name.endswith("cnn.py") else "")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()


def files(code: Code) -> set[str]:
    return set(zipfile.ZipFile(io.BytesIO(code.archive)).namelist()) - {code_origins.NAME}


def origins(code: Code) -> code_origins.Origins:
    return code_origins.decode(zipfile.ZipFile(io.BytesIO(code.archive)).read(code_origins.NAME))


@pytest.mark.parametrize(("call", "file"), SENT.items(), ids=SENT)
def test_a_package_that_is_named(call: str, file: str) -> None:
    function = cell(f"{HEAD}def library(x): pass\ndef train(k): return {call}\n")
    assert file in files(pack(function))
    reason = "a file that a text may name keeps nothing out of the zygote, and adds nothing"
    assert preload_choice(function).modules == (), reason


@pytest.mark.parametrize(("call", "why"), NOT_SENT.items(), ids=NOT_SENT)
def test_a_text_that_is_no_package(call: str, why: str) -> None:
    assert files(pack(cell(f"{HEAD}def library(x): pass\ndef train(k): return {call}\n"))) == set(), why


def test_a_module_that_the_function_imports_may_name_it(tmp_path: Path) -> None:
    source = "import importlib\ndef build(k): return importlib.import_module('dynpack.' + k)\n"
    (tmp_path / "dynlone.py").write_text(source)
    assert files(pack(cell("def train(k):\n import dynlone\n"))) == ALL


def test_a_parameter_may_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparktrain.driver.continuation.program._changed", lambda *_: {})  # what other tests have set
    program = FunctionProgram(cell("import importlib\ndef train(module): return importlib.import_module(module)\n"))
    program.check("sweep", grid(module=["dynpack.cnn", "dynlone"]), "the space")
    assert files(program.packed(ALONE, {}, 2**20, None).code) == ALL


def test_a_file_of_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dynmain.py").write_text("import importlib\ndef train(k): importlib.import_module('dynspace.' + k)\n")
    assert {"dynpack/cnn.py", "dynspace/cnn.py"} <= files(pack(resolve(f"{tmp_path}/dynmain.py:train")))
    monkeypatch.delitem(sys.modules, "dynmain")


def test_a_module_that_is_loaded_from_a_folder_that_the_path_has_no_more_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next driver does not find it, and would take the code for other code."""
    function = cell("import importlib\ndef train(k): return importlib.import_module('dynpack.' + k)\n")
    assert files(pack(function)) == {"dynpack/__init__.py", "dynpack/cnn.py"}
    spec = PathFinder.find_spec("dynpack")
    assert spec is not None
    monkeypatch.setitem(sys.modules, "dynpack", importlib.util.module_from_spec(spec))
    monkeypatch.setattr(sys, "path", sys.path[1:])
    assert files(pack(function)) == set()


def test_such_a_module_that_a_named_package_imports_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dynouter").mkdir()
    (tmp_path / "dynouter" / "net.py").write_text("import dyngone\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "dyngone.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    function = cell("import importlib\ndef train(k): return importlib.import_module('dynouter.' + k)\n")
    with monkeypatch.context() as inner:
        inner.syspath_prepend(str(tmp_path / "elsewhere"))
        importlib.import_module("dyngone")
        assert files(pack(function)) == {"dynouter/net.py", "dyngone.py"}
    assert files(pack(function)) == {"dynouter/net.py"}
    monkeypatch.delitem(sys.modules, "dyngone")


def test_a_named_folder_that_is_too_large_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_zip, "MAX_ARCHIVE_BYTES", 10)
    code = pack(cell("import importlib\ndef train(k):\n import dynlone\n importlib.import_module('dynpack.' + k)\n"))
    assert files(code) == {"dynlone.py"}


def hint_on(source: str, code: Code) -> str:
    try:
        exec(source, {"importlib": importlib})
    except ModuleNotFoundError as error:
        return Homes("", origins(code)).hint(error)
    raise AssertionError


def test_a_module_that_was_left_is_named_with_the_line_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    code = pack(cell("def train(k): pass"))
    assert {"dynpack", "dynspace", "dynlone"} <= set(origins(code).left)
    assert "dyndata" not in origins(code).left
    monkeypatch.setattr(sys, "path", sys.path[1:])
    assert "write `import dynpack.cnn` in the function" in hint_on("importlib.import_module('dynpack.cnn')", code)
    assert "write `import dynlone` in the function" in hint_on("__import__('dynlone')", code)
    assert hint_on("importlib.import_module('of_no_one')", code) == ""


def test_a_pickle_of_a_class_that_the_function_does_not_name() -> None:
    error = AttributeError("Can't get attribute 'Scaler' on <module '__main__' (built-in)>")
    assert "name Scaler in the function, or move it to a module" in Homes().hint(error)
    assert Homes().hint(AttributeError("Can't get attribute 'Scaler' on <module 'other'>")) == ""


def test_an_environment_among_the_parameters_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check: Callable[..., None] = FunctionProgram(cell("def train(a): pass")).check
    with pytest.raises(SpecError, match="the space: 'a' has a copy of the driver's environment"):
        check("sweep", grid(a=[{"n": dict(os.environ)}]), "the space")
    check("sweep", grid(a=[{"HOME": os.environ["HOME"]}]), "the space")
