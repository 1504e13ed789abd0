"""A trial finds in `__main__` what its script has: for pickles, processes, caches, and what Keras has registered."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sparktrain.usercode.serialize import pack
from tests.process.harness import Bench
from tests.unit.scripted import cell

SCRIPT = """
import concurrent.futures, dataclasses, enum, functools, multiprocessing, pickle, sys
from os import environ
from typing import NamedTuple
class Color(enum.Enum):
    RED = 1
class Point(NamedTuple):
    x: int
    color: Color
@dataclasses.dataclass(frozen=True)
class Scaler:
    mean: float = 3.0
    class Inner:
        pass
held = Scaler()
inner = Scaler.Inner()
@functools.cache
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
def square(x):
    return x * x
def mean_of(scaler):
    return scaler.mean
def again(value):
    loaded = pickle.loads(pickle.dumps(value))
    assert type(loaded) is type(value)
    return loaded
"""
PICKLES = """
def train():
    import __main__
    assert again(held) == held and again(Point(1, Color.RED)) == (1, Color.RED) and again(Color.RED) is Color.RED
    assert again(fib) is fib and again(square) is square and type(again(inner)).__qualname__ == "Scaler.Inner"
    assert __main__.Scaler is type(held) and __main__.__dict__ is globals() and __name__ == "__main__"
    assert __main__.__file__ == __file__ == "/home/me/train.py"
    return float(fib(60))
"""
POOLS = """
def train(how):
    context = multiprocessing.get_context(how)
    with context.Pool(1) as pool:
        assert pool.map(square, [3]) == [9]
        assert pool.apply(again, [held]) == held
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        return sum(pool.map(mean_of, [held, Scaler(4.0)])) + pool.submit(fib, 10).result()
"""
ENVIRONMENT = """
def train():
    import os, subprocess
    environ["OF_THE_TRIAL"] = "set"
    assert environ is os.environ and "OF_THE_DRIVER" not in environ
    assert subprocess.run(["printenv", "OF_THE_TRIAL"], capture_output=True, text=True).stdout == "set\\n"
"""
ABSENT = "def train(): return sys.modules['__main__'].not_named"


def packed(source: str, **names: Any) -> bytes:
    return pack(cell(source, **names)).function


async def test_pickles_of_the_script_work_in_a_trial(bench: Bench) -> None:
    trial = await bench.run(packed(SCRIPT + PICKLES, __file__="/home/me/train.py"))
    assert trial.metrics == {"result": 1548008755920.0}


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
async def test_so_do_processes_of_every_kind(bench: Bench, how: str) -> None:
    trial = await bench.run(packed(SCRIPT + POOLS), params={"how": how})
    assert trial.metrics == {"result": 62.0}


async def test_a_trial_has_the_environment_of_its_own_process(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_DRIVER", "a secret")
    assert (await bench.run(packed(SCRIPT + ENVIRONMENT))).metrics == {}


async def test_what_the_function_does_not_name_is_explained(bench: Bench) -> None:
    failure = (await bench.run(packed(SCRIPT + ABSENT))).failure
    assert "has no attribute 'not_named'" in failure.summary
    assert "name not_named in the function, or move it to a module beside the script" in failure.summary


async def test_each_trial_has_a_script_of_its_own(bench: Bench) -> None:
    first = await bench.run(packed("def train():\n global left\n left = 1\n return left"))
    second = await bench.run(packed("import sys\ndef train(): return int(hasattr(sys.modules['__main__'], 'left'))"))
    third = await bench.run("tests.process.local_functions:main_of")
    assert (first.metrics, second.metrics, third.metrics) == ({"result": 1.0}, {"result": 0.0}, {"result": 0.0})


KERAS = '''
"""As much of Keras as registers."""
from types import SimpleNamespace

objects = {}
def register_keras_serializable(package="Custom", name=None):
    def decorate(made):
        objects[f"{package}>{name or made.__name__}"] = made
        return made
    return decorate
utils = SimpleNamespace(get_custom_objects=lambda: objects, register_keras_serializable=register_keras_serializable)
'''
REGISTERED = """
register = keras.utils.register_keras_serializable("mine", "Scale")
@register
class Scale:
    pass
@keras.utils.register_keras_serializable()
def unnamed(x):
    return x + square(1)
def square(x):
    return x * x
keras.objects["plain"] = square
def train():
    import keras
    found = keras.utils.get_custom_objects()
    assert found["mine>Scale"] is Scale and found["plain"](3) == 9 and found["Custom>unnamed"](1) == 2
    return len(found)
"""


@pytest.fixture
def keras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], ModuleType]:
    """Imports a stand-in for Keras in this process; members find it in the folder of the test."""
    (tmp_path / "keras.py").write_text(KERAS)
    monkeypatch.delitem(sys.modules, "keras", raising=False)
    made = ModuleType("keras")
    exec(KERAS, vars(made))
    monkeypatch.setitem(sys.modules, "keras", made)
    return lambda: made


async def test_a_trial_registers_with_keras_what_the_script_has(
    bench: Bench, keras: Callable[[], ModuleType], tmp_path: Path
) -> None:
    trial = await bench.run(packed(REGISTERED, keras=keras()), sys_path=(str(tmp_path),))
    assert trial.metrics == {"result": 3.0}


async def test_a_function_without_keras_does_not_import_it(
    bench: Bench, keras: Callable[[], ModuleType], tmp_path: Path
) -> None:
    source = (
        REGISTERED.partition("def train")[0]
        + "import sys\ndef train(): return int(Scale is None or 'keras' in sys.modules)"
    )
    os.unlink(tmp_path / "keras.py")
    assert (await bench.run(packed(source, keras=keras()))).metrics == {"result": 0.0}


PROGRAM = """
import functools, glob, multiprocessing, os, pickle, sys
from os import environ, environb
import keras
import numpy as np
import sparktrain as st
IN_A_PACKAGE
@keras.saving.register_keras_serializable(package="mine")
class Scale(keras.layers.Layer):
    def call(self, x):
        return x * 2.0
@functools.cache
def rows(n):
    return np.ones((n, 2), "float32")
def build():
    return keras.Sequential([keras.Input((2,)), Scale(), keras.layers.Dense(1)])
def train(n, ctx):
    assert environ is os.environ
    model = build()
    model.compile("sgd", "mse")
    model.fit(rows(n), np.ones((n, 1)), verbose=0)
    ctx.export(model)
    model.save("here.keras")
    again = keras.models.load_model("here.keras")
    assert type(again.layers[0]) is Scale
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return float(pool.map(rows, [3])[0].sum())
if __name__ == "__main__":
    result = st.sweep(train, {"n": [8]}, metric="loss", spark=st.local(slots=1), progress=False, name="registered")
    assert result.best.metrics == {"loss": 6.0}, result.trials[0].error
    (exported,) = glob.glob("sparktrain-runs/registered/**/model.keras", recursive=True)
    assert type(keras.models.load_model(exported).layers[0]) is Scale
    kept = [file for file in glob.glob("sparktrain-runs/**/*", recursive=True) if os.path.isfile(file)]
    assert not [file for file in kept if environb[b"A_SECRET"] in open(file, "rb").read()]
"""


@pytest.mark.all(
    case="a script, and a module of `python -m`, with layers of their own for Keras",
    covered_by="`process/test_scripts`: pickles, processes, caches and a stand-in for Keras in members",
)
@pytest.mark.parametrize("command", [["program.py"], ["-m", "package.program"]], ids=["a script", "python -m"])
def test_a_program_with_keras_works_in_trials_as_in_itself(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").touch()
    (tmp_path / "package/values.py").touch()
    (tmp_path / "program.py").write_text(PROGRAM.replace("IN_A_PACKAGE", ""))
    (tmp_path / "package/program.py").write_text(PROGRAM.replace("IN_A_PACKAGE", "from . import values"))
    ran = subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path,
        env={**os.environ, "A_SECRET": "hunter2-of-the-driver"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
