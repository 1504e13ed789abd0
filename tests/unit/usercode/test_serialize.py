"""Code packed on the driver can be called in a fresh process without the user's files."""

import functools
import hashlib
import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparktrain.driver.options import SweepOptions
from sparktrain.errors import FunctionError, SpecError
from sparktrain.protocol.code_origins import NAME as ORIGINS
from sparktrain.protocol.messages import Code
from sparktrain.usercode import module_zip
from sparktrain.usercode.closure import belongs_to_driver, captures_of
from sparktrain.usercode.imports import Sources
from sparktrain.usercode.serialize import MOST_CODE_BYTES, pack
from sparktrain.usercode.target import resolve
from tests.unit.scripted import cell, of_a_script

ROOT = Path(__file__).parents[3]

CALL = """
import importlib, json, sys
import cloudpickle
home, by_reference, params = sys.argv[1], sys.argv[2] == "True", json.loads(sys.argv[3])
sys.path[:0] = [home + "/modules"]
data = open(home + "/function", "rb").read()
if by_reference:
    module, _, name = data.decode().partition(":")
    function = getattr(importlib.import_module(module), name)
else:
    function = cloudpickle.loads(data)
print(json.dumps(function(**params)))
"""


@pytest.fixture(autouse=True)
def _imports() -> Iterator[None]:
    """Remove what a test imports or puts on `sys.path`."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("ship_"):
            del sys.modules[name]


@pytest.fixture
def there(tmp_path: Path) -> Callable[..., Any]:
    """Calls packed code in a process as on an executor: another folder, and nothing of the user's to import."""

    def call(code: Code, **params: Any) -> Any:
        home = tmp_path / f"executor-{code.digest}"
        home.mkdir()
        (home / "function").write_bytes(code.function)
        if code.archive:
            with zipfile.ZipFile(io.BytesIO(code.archive)) as modules:
                modules.extractall(home / "modules")
        command = [sys.executable, "-c", CALL, str(home), str(code.by_reference), json.dumps(params)]
        ran = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    return call


def write(folder: Path, name: str, content: str | bytes = "") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def names_in(code: Code) -> list[str]:
    return [name for name in zipfile.ZipFile(io.BytesIO(code.archive)).namelist() if name != ORIGINS]


def test_a_notebook_function_with_its_captures(there: Callable[..., Any]) -> None:
    source = """
import json
import numpy as np
class Model:
    def __init__(self, width): self.width = width
    def size(self): return self.width * FACTOR
FACTOR = 10
def helper(x): return Model(x).size()
def train(width, ctx=None):
    import os.path
    return [helper(width), float(np.sum(ARRAY)), json.loads("3"), os.path.basename("/a/b")]
"""
    code = pack(cell(source, ARRAY=np.ones(4)))
    assert not code.by_reference
    assert there(code, width=3) == [30, 4.0, 3, "b"]


def test_closures_lambdas_and_partials(there: Callable[..., Any]) -> None:
    offset = 5
    adds = cell("def train(f, **params): return f(**params)")
    assert there(pack(functools.partial(adds, cell("train = lambda x, y: x - y + z", z=offset), y=1)), x=3) == 7
    assert there(pack(cell("def outer(n):\n def inner(x): return x * n\n return inner\ntrain = outer(4)")), x=2) == 8


def test_methods_and_objects(there: Callable[..., Any]) -> None:
    source = "class T:\n def __init__(self): self.k = 3\n def train(self, x): return self.k * x\n __call__ = train\n"
    assert there(pack(cell(source + "train = T().train")), x=2) == 6
    assert there(pack(cell(source + "train = T()")), x=3) == 9


def test_a_function_of_an_installed_module_needs_no_archive(there: Callable[..., Any]) -> None:
    import statistics

    code = pack(statistics.mean)
    assert names_in(code) == []
    assert there(code, data=[1, 2, 3]) == 2


def test_the_digest_is_of_function_and_archive(tmp_path: Path) -> None:
    code = pack(resolve(f"{write(tmp_path, 'ship_digest.py', 'def train(): pass')}:train"))
    assert code.digest == hashlib.sha256(code.function + code.archive).hexdigest()


def test_modules_beside_a_script_are_packed(there: Callable[..., Any], tmp_path: Path) -> None:
    write(tmp_path, "user/ship_model.py", "import ship_sizes\ndef build(n): return n * ship_sizes.WIDTH\n")
    write(tmp_path, "user/ship_sizes.py", "WIDTH = 7\n")
    write(tmp_path, "user/ship_lazy/__init__.py", "from .inner import VALUE\n")
    write(tmp_path, "user/ship_lazy/inner.py", "VALUE = 100\n")
    write(tmp_path, "user/ship_unrelated.py", "")
    script = """
import pickle, sys
import ship_model
from sparktrain.driver.options import SweepOptions
from sparktrain.usercode.imports import Sources
from sparktrain.usercode.serialize import MOST_CODE_BYTES, pack
def train(n):
    from ship_lazy import VALUE
    return ship_model.build(n) + VALUE
code = pack(train)
pickle.dump((code.digest, code.function, code.by_reference, code.archive), open(sys.argv[1], "wb"))
"""
    path, out = write(tmp_path, "user/ship_script.py", script), tmp_path / "out"
    program = f"import sys, runpy; sys.path.insert(1, {str(ROOT)!r}); sys.path.insert(0, {str(path.parent)!r}); "
    program += f"sys.argv = ['x', {str(out)!r}]; runpy.run_path({str(path)!r}, run_name='__main__')"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, cwd=tmp_path)
    import pickle

    code = Code(*pickle.loads(out.read_bytes()))
    assert names_in(code) == ["ship_lazy/__init__.py", "ship_lazy/inner.py", "ship_model.py", "ship_sizes.py"]
    assert there(code, n=2) == 114


def test_the_local_module_of_a_function_is_packed(there: Callable[..., Any], tmp_path: Path) -> None:
    write(tmp_path, "user/ship_local.py", "def train(n): return n + 1\n")
    sys.path.insert(0, str(tmp_path / "user"))
    import ship_local  # type: ignore[import-not-found]

    code = pack(ship_local.train)
    assert names_in(code) == ["ship_local.py"]
    assert there(code, n=1) == 2


def test_files_beside_a_target_are_packed(there: Callable[..., Any], tmp_path: Path) -> None:
    file = write(tmp_path, "ship_file.py", "import ship_part, ship_plain.x\ndef train(n): return ship_part.f(n)\n")
    write(
        tmp_path,
        "ship_part/__init__.py",
        "from pathlib import Path\ndef f(n):\n    return n + int((Path(__file__).parent / 'n.txt').read_text())\n",
    )
    write(tmp_path, "ship_part/n.txt", "5")
    write(tmp_path, "ship_part/large.bin", bytes(2**20 + 1))
    write(tmp_path, "ship_part/native.so", bytes(2**20 + 1))
    write(tmp_path, "ship_plain/x.py")
    write(tmp_path, "other.py")
    for name in ("notes.txt", "data/a.csv", ".hidden.py", ".git/x.py", "__pycache__/x.py", "node_modules/__init__.py"):
        write(tmp_path, name)
    for name in (
        "venv/pyvenv.cfg",
        "venv/__init__.py",
        "ship_part/env/pyvenv.cfg",
        "ship_part/env/x.py",
        "sparktrain/__init__.py",
    ):
        write(tmp_path, name)
    code = pack(resolve(f"{file}:train"))
    assert code.by_reference
    assert code.function == b"ship_file:train"
    names = [
        "other.py",
        "ship_file.py",
        "ship_part/__init__.py",
        "ship_part/n.txt",
        "ship_part/native.so",
        "ship_plain/x.py",
    ]
    assert names_in(code) == names
    assert there(code, n=1) == 6


def test_the_archive_is_the_same_for_the_same_files(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        for name in sorted(["b.py", "a.py", "p/__init__.py", "p/z.py"], reverse=folder == "two"):
            write(tmp_path, f"{folder}/{name}", f"name = {name!r}")
    assert module_zip.archive_beside(tmp_path / "one", Sources()) == module_zip.archive_beside(
        tmp_path / "two", Sources()
    )


def test_a_package_and_its_imports_are_packed(there: Callable[..., Any], tmp_path: Path) -> None:
    write(tmp_path, "ship_package/__init__.py")
    write(
        tmp_path,
        "ship_package/deep/train.py",
        "from ..sizes import N\nimport ship_beside\ndef train(n): return n + N\n",
    )
    write(tmp_path, "ship_package/sizes.py", "N = 3\n")
    write(tmp_path, "ship_beside.py")
    write(tmp_path, "ship_unrelated.py")
    code = pack(resolve("ship_package.deep.train:train", tmp_path))
    expected = ["ship_beside.py", "ship_package/__init__.py", "ship_package/deep/train.py", "ship_package/sizes.py"]
    assert names_in(code) == expected
    assert there(code, n=1) == 4


def test_an_archive_that_is_too_large_names_the_largest(tmp_path: Path) -> None:
    file = write(tmp_path, "ship_big.py", "def train(): pass")
    for index in range(25):
        write(tmp_path, f"ship_data/part{index}.bin", bytes(2**20 - index))
    write(tmp_path, "ship_data/__init__.py")
    message = r"25\.0 MiB in 27 files, 20 MiB is the most.* ship_data/part0\.bin \(1\.0 MiB\), .*: move data"
    with pytest.raises(FunctionError, match=message):
        pack(resolve(f"{file}:train"))


def test_an_archive_of_too_many_files(tmp_path: Path) -> None:
    for index in range(5):
        write(tmp_path, f"ship_many/{index}.txt")
    write(tmp_path, "ship_many/__init__.py")
    with pytest.raises(FunctionError, match=r"ship_many: more than 3 files.*move the data"):
        module_zip.archive_beside(tmp_path, Sources(), most_files=3)


def test_the_limit_of_function_and_archive_can_be_set(tmp_path: Path) -> None:
    target = resolve(f"{write(tmp_path, 'ship_both.py', 'def train(): pass')}:train")
    with pytest.raises(
        FunctionError, match=r"ship_both\.py:1\) has .* with all that it takes along.*raise code_limit \(to 120 MiB"
    ):
        pack(target, 10)
    assert pack(target, 2**20).archive


def test_a_limit_reached_while_pickling_can_be_raised() -> None:
    data = bytes(2**21)

    @of_a_script
    def train() -> int:
        return len(data)

    with pytest.raises(FunctionError, match=r"more than 1 MiB .* 1 MiB can be sent .*'data' .* has 2.0 MiB"):
        pack(train, 2**20)
    assert len(pack(train, 2**22).function) > 2**21


@pytest.mark.parametrize(("limit", "rule"), [(0, "at least 1"), (MOST_CODE_BYTES + 1, "at most"), ("60m", "number")])
def test_an_invalid_limit_is_refused(limit: Any, rule: str) -> None:
    with pytest.raises(SpecError, match=rf"^code_limit .*{rule}"):
        SweepOptions(code_limit=limit).most_code()


def test_captures_have_names() -> None:
    source = "def outer(n):\n def train(x, k=1, *, z=2): return A + [n, k, z] + B\n return train\ntrain = outer(3)"
    train = cell(source, A=[1], B=[2])
    train.note = 9  # type: ignore[attr-defined]
    assert [str(capture) for capture in captures_of(train)] == [
        "global 'A' (list) used by train at line 2",
        "global 'B' (list) used by train at line 2",
        "closure variable 'n' (int) of train",
        "default value of parameter 'k' (int) of train",
        "default value of parameter 'z' (int) of train",
        "attribute 'train.note' (int)",
    ]


def test_a_row_is_data_and_a_session_is_not() -> None:
    from pyspark.sql import Row, SparkSession

    assert not belongs_to_driver(Row(a=1))
    assert belongs_to_driver(object.__new__(SparkSession))
