"""Whether a function can be called with the names of a space, and how the command line names functions."""

import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparktrain.errors import FunctionError
from sparktrain.search.space import cases, grid, when, zipped
from sparktrain.usercode.target import Target, check_call, resolve


def both(lr: float, dropout: float) -> None: ...


def default(lr: float, dropout: float = 0.5) -> None: ...


def with_ctx(lr: float, ctx: Any) -> None: ...


def keyword_only(*, lr: float, ctx: Any = None) -> None: ...


def anything(**params: Any) -> None: ...


def some_and_anything(lr: float, *rest: float, **params: Any) -> None: ...


def positional_default(seed: int = 0, /, lr: float = 1) -> None: ...


@functools.wraps(both)
def wrapped(*args: Any, **kwargs: Any) -> None: ...


class Trainer:
    def train(self, lr: float, dropout: float) -> None: ...

    @staticmethod
    def static(lr: float, dropout: float) -> None: ...

    @classmethod
    def of_class(cls, lr: float, dropout: float) -> None: ...

    def __call__(self, lr: float, dropout: float) -> None: ...


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (both, "lr dropout"),
        (default, "lr"),
        (with_ctx, "lr"),
        (keyword_only, "lr"),
        (anything, "lr"),
        (some_and_anything, "lr dropout"),
        (positional_default, "lr"),
        (wrapped, "lr dropout"),
        (Trainer().train, "lr dropout"),
        (Trainer.static, "lr dropout"),
        (Trainer.of_class, "lr dropout"),
        (Trainer(), "lr dropout"),
        (functools.partial(both, dropout=1), "lr"),
        (functools.partial(both, 1), "dropout"),
        (lambda lr, dropout: lr, "lr dropout"),
        (lambda: 0, ""),
    ],
)
def test_can_be_called(function: Any, names: str) -> None:
    check_call(function, cases([dict.fromkeys(names.split(), 1)]))


@pytest.mark.parametrize(
    "space",
    [
        grid(lr=[1], dropout=[1, 2]),
        zipped(lr=[1], dropout=[2]),
        grid(lr=[1, 2], dropout=when(lambda p: p["lr"] == 1, [0.5], otherwise=0.1)),
        grid(lr=[1, 2], dropout=when(lambda p: p["lr"] == 1, [0.5]), where=lambda p: p["lr"] == 1),
    ],
)
def test_spaces_that_give_every_parameter(space: Any) -> None:
    check_call(both, space)


def test_a_name_left_out_needs_a_default() -> None:
    check_call(default, cases([{"lr": 1, "dropout": 2}, {"lr": 1}]))
    with pytest.raises(FunctionError, match=r"'dropout' has no value for {'lr': 1}"):
        check_call(both, cases([{"lr": 1, "dropout": 2}, {"lr": 1}]))


def test_a_wrapper_that_runs_a_coroutine_is_a_function() -> None:
    async def coroutine(lr: float) -> None: ...

    @functools.wraps(coroutine)
    def runs_it(lr: float) -> None: ...

    check_call(runs_it, [{"lr": 1}])


@pytest.mark.parametrize(
    ("function", "name", "slug"),
    [
        (both, "both", "both"),
        (lambda lr: 1, "lambda", "lambda"),
        (Trainer().train, "train", "train"),
        (Trainer(), "__call__", "call__"),
        (functools.partial(both, 1), "both", "both"),
    ],
)
def test_names(function: Any, name: str, slug: str) -> None:
    assert Target.of(function).name == name
    assert Target.of(function).slug == slug


def test_a_slug_of_a_name_without_latin_letters() -> None:
    names: dict[str, Any] = {}
    exec("def 学习(): pass\ndef _été2(): pass", names)
    assert Target.of(names["学习"]).slug == "run"
    assert Target.of(names["_été2"]).slug == "t2"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for modules, which are unloaded afterwards."""
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_file(folder: Path) -> None:
    write(folder, "target_helper.py", "FACTOR = 2\n")
    file = write(folder, "target_a.py", "from target_helper import FACTOR\ndef train(lr): return lr * FACTOR\n")
    target = resolve(f"{file}:train")
    assert target.function(3) == 6
    assert target.reference == "target_a:train"
    assert target.file == file
    assert target.root == folder
    assert target.name == "target_a:train"
    assert sys.path[0] == str(folder)
    assert resolve(f"{file}:train").function is target.function


def test_a_file_named_relative_to_the_working_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, "target_b.py", "def train(lr): return lr\n")
    monkeypatch.chdir(folder)
    assert resolve("target_b.py:train").root == folder
    assert resolve("./target_b.py:train").root == folder


def test_a_module_below_the_working_directory(folder: Path) -> None:
    write(folder, "target_package/__init__.py", "")
    file = write(folder, "target_package/deep/train.py", "def train(lr): return lr\n")
    target = resolve("target_package.deep.train:train", folder)
    assert target.reference == "target_package.deep.train:train"
    assert (target.file, target.root) == (file, folder)


def test_a_package_itself(folder: Path) -> None:
    file = write(folder, "target_whole/__init__.py", "def train(lr): return lr\n")
    target = resolve("target_whole:train", folder)
    assert (target.file, target.root) == (file, folder)


def test_an_installed_module(folder: Path) -> None:
    target = resolve("statistics:mean", folder)
    assert target.reference == "statistics:mean"
    assert (target.file, target.root) == (None, None)


def test_a_missing_function_is_proposed_from_the_source(folder: Path) -> None:
    file = write(folder, "target_c.py", "def load(): pass\ndef train_model(lr): pass\n")
    with pytest.raises(FunctionError, match=r"write .*target_c\.py:train_model"):
        resolve(str(file))


def test_only_the_users_lines_are_shown(folder: Path) -> None:
    write(folder, "target_inner.py", "import json\ndef f():\n    json.loads('{')\n")
    file = write(folder, "target_d.py", "import target_inner\ntarget_inner.f()\n")
    with pytest.raises(FunctionError) as caught:
        resolve(f"{file}:train")
    message = str(caught.value)
    assert "JSONDecodeError" in message
    assert "target_d.py" in message
    assert 'target_inner.py", line 3' in message
    assert "json/decoder.py" not in message
    assert "signature.py" not in message
    assert "importlib" not in message


def test_another_module_of_that_name_is_refused(folder: Path) -> None:
    resolve(f"{write(folder, 'one/target_e.py', 'def train(): pass')}:train")
    with pytest.raises(FunctionError, match="another module is called 'target_e'"):
        resolve(f"{write(folder, 'two/target_e.py', 'def train(): pass')}:train")
