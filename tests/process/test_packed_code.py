"""Code packed on the driver can be called in a fresh process without the user's files."""

import functools
import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparktrain.protocol.messages import Code
from sparktrain.usercode.serialize import pack
from sparktrain.usercode.target import resolve
from tests.unit.scripted import cell
from tests.unit.usercode.test_serialize import names_in, write

ROOT = Path(__file__).parents[2]


pytestmark = pytest.mark.usefixtures("own_imports")


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
