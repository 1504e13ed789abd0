"""What travels by name, what by value, and what is refused: the driver's environment, and unknown objects of Keras."""

import importlib
import json
import logging
import os
import pickle
import random
import sys
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import cloudpickle
import numpy as np
import pytest

from sparktrain.errors import FunctionError
from sparktrain.protocol.row_pickles import pickle_of
from sparktrain.usercode.serialize import pack, pickled
from tests.unit.scripted import cell

SECRET = "hunter2-of-the-driver"
COPIES: dict[str, Callable[[], Any]] = {
    "a dict": lambda: dict(os.environ),
    "with others": lambda: {**os.environ, "X": "1"},
    "without some": lambda: {name: value for name, value in os.environ.items() if not name.startswith("L")},
    "a shallow copy": lambda: os.environ.copy(),
    "bytes": lambda: dict(os.environb),
    "pairs": lambda: list(os.environ.items()),
    "lines": lambda: [f"{name}={value}" for name, value in os.environ.items()],
    "text": lambda: str(dict(os.environ)),
    "JSON": lambda: json.dumps(dict(os.environ)),
    "nested": lambda: [("n", {"deep": dict(os.environ)})],
    "an attribute": lambda: SimpleNamespace(env=dict(os.environ)),
}
SINGLES = {
    "os.environ": os.environ,
    "os.environb": os.environb,
    "sys.path": sys.path,
    "sys.modules": sys.modules,
    "sys.stdout": sys.stdout,
    "random._inst": random.random.__self__,  # type: ignore[attr-defined]
    "numpy's": np.random.mtrand._rand,
    "a logger": logging.getLogger("anyone"),
    "a module of a class of its own": importlib.import_module("six.moves"),
}


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_KEY", "DATABASE_URL", "TOKEN"):
        monkeypatch.setenv(f"PICKLER_{name}", f"{SECRET}-{name}")


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
def test_a_copy_of_the_environment_is_refused_by_its_name(copy: Callable[[], Any]) -> None:
    with pytest.raises(FunctionError, match=r"global .*held\b.* has a copy of the driver's environment.*forward_env="):
        pack(cell("def train(): return held", held=copy()))


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("def train(x=dict(os.environ)): return x", "default value of parameter 'x'"),
        ("def train(*, x=dict(os.environ)): return x", "default value of parameter 'x'"),
        ("class C:\n e = dict(os.environ)\ndef train(): return C", "global 'C.e'"),
        ("e = dict(os.environ)\ndef f(): return e\ndef train(): return f()", "global 'e' .* used by f"),
        ("def g(e):\n def f(): return e\n return f\ntrain = g(dict(os.environ))", "closure variable 'e'"),
        ("import functools\ntrain = functools.partial(print, dict(os.environ))", r"args\[0\]"),
        ("def train(): pass\ntrain.e = dict(os.environ)", "attribute 'train.e'"),
    ],
)
def test_wherever_the_copy_is(source: str, named: str) -> None:
    with pytest.raises(FunctionError, match=rf"{named}.* has a copy of the driver's environment"):
        pickled(cell(source, os=os))


def test_a_few_variables_that_the_user_chose_travel() -> None:
    chosen = {name: os.environ[name] for name in ("PATH", "HOME", "PICKLER_TOKEN")}
    assert SECRET.encode() in pickled(cell("def train(): return held", held=chosen))


@pytest.mark.parametrize("single", SINGLES.values(), ids=SINGLES)
@pytest.mark.parametrize(
    "source",
    [
        "def train(): return held",
        "def train(x=held): return x",
        "def train(*, x=held): return x",
        "def g(e):\n def f(): return e\n return f\ntrain = g(held)",
    ],
)
def test_what_a_library_holds_once_goes_by_its_name(single: Any, source: str) -> None:
    data = pickled(cell(source, held=single))
    assert SECRET.encode() not in data
    assert len(data) < 2_000
    assert pickle.loads(data)() is single


def test_what_a_library_sets_later_goes_by_the_name_that_it_has_in_a_new_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "acme_parts.py").write_text("class Client: pass\ncurrent = started = None\nfirst = Client()\n")
    monkeypatch.syspath_prepend(str(folder))
    parts = importlib.import_module("acme_parts")
    del parts.first
    parts.current = parts.first = parts.Client()
    parts.started = parts.Client()
    known, unknown = (pickled(cell("def train(): return held", held=held)) for held in (parts.first, parts.started))
    parts = importlib.reload(parts)
    assert pickle.loads(known)() is parts.first
    with pytest.raises(ImportError, match=r"uses acme_parts\.started of the driver, which a new process does not have"):
        pickle.loads(unknown)


def test_also_within_objects_and_methods_of_it() -> None:
    source = "class C:\n pass\nc = C()\nc.env = held\ndef train(): return c.env, get, draw.__self__"
    env, get, drawing = pickle.loads(pickled(cell(source, held=os.environ, get=os.environ.get, draw=random.shuffle)))()
    assert env is os.environ
    assert get.__self__ is os.environ
    assert drawing is random.random.__self__  # type: ignore[attr-defined]


def test_an_object_of_the_user_travels_by_value_whatever_its_class() -> None:
    data = pickled(cell("def train(): return held, argv", held=random.Random(3), argv=sys.argv))
    drawing, argv = pickle.loads(data)()
    assert drawing.random() == random.Random(3).random()
    assert argv == sys.argv
    assert argv is not sys.argv


NESTED = """
class Model:
    def twice(self): return (x for x in ())
def train():
    def inner(): return lambda: Model
    return Model.twice, inner, Model
"""


@pytest.fixture(params=["installed", "constant"])
def _cloudpickle(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The installed cloudpickle, and one that names the file of no code, as 3.1.3 does."""
    table = cloudpickle.Pickler.dispatch_table
    plain = table[CodeType]
    if request.param == "constant":
        monkeypatch.setitem(table, CodeType, lambda code: plain(code.replace(co_filename="<dynamic-code>")))


def files_of(code: CodeType) -> set[str]:
    return {code.co_filename}.union(*(files_of(const) for const in code.co_consts if isinstance(const, CodeType)))


@pytest.mark.usefixtures("_cloudpickle")
@pytest.mark.parametrize("dump", [pickled, lambda function: pickle_of([function])], ids=["function", "rows"])
def test_code_keeps_the_name_of_its_file(dump: Callable[[Any], bytes]) -> None:
    loaded = pickle.loads(dump(cell(NESTED)))
    train = loaded[0] if isinstance(loaded, list) else loaded
    for function in (train, *train()[:2]):
        assert files_of(function.__code__) == {"<cell>"}


BY_NAME_IN_A_SCRIPT = """
import abc, dataclasses, functools, typing
Id = typing.NewType("Id", int)
P, R = typing.ParamSpec("P"), typing.TypeVar("R")
def plain(f: typing.Callable[P, R]) -> typing.Callable[P, R]:
    @functools.wraps(f)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        return f(*args, **kwargs)
    return called
@functools.cache
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
class Model:
    @functools.lru_cache(maxsize=4)
    def twice(self, x): return 2 * x
    @functools.cached_property
    def three(self): return 3
    class Inner:
        pass
inner = Model.Inner()
@functools.singledispatch
def kind(x): return "any"
@kind.register
def _(x: int): return "int"
@plain
def train():
    model = Model()
    cached = fib.cache_parameters(), Model.twice.cache_parameters()
    kinds = kind(1), kind("")
    return fib(50), model.twice(4), model.three, cached, kinds, Id(5), type(inner).__qualname__, fib.cache_info().hits
"""


def test_what_pickles_itself_by_a_name_of_the_script_travels_by_value() -> None:
    train = pickle.loads(pickled(cell(BY_NAME_IN_A_SCRIPT)))
    assert train() == (
        12586269025, 8, 3, ({"maxsize": None, "typed": False}, {"maxsize": 4, "typed": False}), ("int", "any"), 5,
        "Model.Inner", 48,
    )  # fmt: skip


IN_A_BODY = """
import threading
from typing import Any
RATE, LOCK = 2, threading.Lock()
def train():
    class C:
        LOCK = RATE
        at = LOCK
        def f(self, x: Any = None): return x + self.at
    return C().f(3)
"""


def test_what_the_body_of_a_class_within_the_function_reads_travels_and_nothing_else() -> None:
    assert pickle.loads(pickled(cell(IN_A_BODY)))() == 5


def test_a_cached_function_brings_the_modules_that_it_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pickler_rows.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    source = "import functools\n@functools.cache\ndef load(): import pickler_rows\ndef train(): load()"
    assert b"pickler_rows.py" in pack(cell(source)).archive


VALUES = """
import functools
class Single:
    def __reduce__(self): return "ONLY"
ONLY = Single()
def double(x): return 2 * x
@functools.cache
def triple(x): return 3 * x
def plain(): return double(2)
def cached(): return triple(2)
def single(): return ONLY
"""


@pytest.mark.parametrize(("name", "returned"), [("plain", 4), ("cached", 6), ("single", None)])
def test_a_module_that_goes_by_value_is_sent_only_for_what_goes_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, returned: int | None
) -> None:
    path = tmp_path / f"pickler_{name}.py"  # another module for each case: an import stays
    path.write_text(VALUES)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module(path.stem)
    assert path.name.encode() in pack(getattr(module, name)).archive
    cloudpickle.register_pickle_by_value(module)
    code = pack(getattr(module, name))
    cloudpickle.unregister_pickle_by_value(module)
    monkeypatch.setitem(sys.modules, path.stem, None)
    if returned is None:
        assert path.name.encode() in code.archive
    else:
        assert path.name.encode() not in code.archive
        assert pickle.loads(code.function)() == returned


USES = {
    "a text": ("held", False),
    "a class": ("module.Row", True),
    "an object": ("module.Row()", True),
    "a module": ("module", True),
    "an object within a pickle": ("pickle.dumps([module.Row()])", True),
    "a text within a pickle": ("pickle.dumps([held, held, 'Row'])", False),
}


@pytest.mark.parametrize("use", USES)
def test_a_loaded_module_is_sent_where_something_goes_by_its_name_and_not_for_an_equal_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    expression, is_needed = USES[use]
    name = f"pickler_rows_{len(use)}"  # another module for each case: an import stays
    (tmp_path / f"{name}.py").write_text("class Row: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module(name)
    held = eval(expression, {"held": name, "module": module, "pickle": pickle})
    archive = pack(cell("def train(): return held", held=held)).archive
    assert (f"{name}.py".encode() in archive) is is_needed


def test_what_only_the_script_can_name_is_refused() -> None:
    class ByName:
        def __reduce__(self) -> str:
            return "only_there"

    ByName.__module__ = "__main__"
    with pytest.raises(FunctionError, match=r"global 'held' .*'only_there' is pickled by its name in the script"):
        pickled(cell("def train(): return held", held=ByName()))


def test_functions_of_a_script_share_its_globals() -> None:
    source = "def set(): global x; x = 1\ndef get(): return x\ndef train(): set(); return get()"
    assert pickle.loads(pickled(cell(source)))() == 1


# ---- Keras


def _of_keras(config: dict[str, Any]) -> type:
    """A class that pickles its objects as Keras does."""

    def _unpickle_model(file: BytesIO) -> None:
        raise AssertionError("executors load it")

    def reduce(self: Any) -> Any:
        saved = BytesIO()
        with zipfile.ZipFile(saved, "w") as archive:
            archive.writestr("config.json", json.dumps(config))
        return _unpickle_model, (saved,)

    return type("Layer", (), {"__module__": "keras.src.layers.layer", "__reduce__": reduce})


NET = "class Net(BASE):\n pass\nclass Holder:\n def __init__(self): self.parts = {'a': [(1, Net())]}\n"
HOLDERS = {
    "held = Net()": "'held'",
    "held = {'l': Net()}": r"\"held\['l'\]\"",
    "held = [0, (Net(),)]": r"'held\[1\]\[0\]'",
    "held = Holder()": r"\"held\.parts\['a'\]\[0\]\[1\]\"",
    "import functools\nheld = functools.partial(print, net=Net())": "'net'",
    "held = []\nheld += [held, Net()]": r"'held\[1\]'",
    "import dataclasses\n@dataclasses.dataclass\nclass D:\n net: object\nheld = D(Net())": r"'held\.net'",
}


@pytest.mark.parametrize(("holder", "named"), HOLDERS.items(), ids=HOLDERS)
def test_an_object_of_a_custom_keras_class_is_found_wherever_it_is(holder: str, named: str) -> None:
    with pytest.raises(FunctionError, match=rf"{named} .* executors do not know; build Keras objects within"):
        pickled(cell(f"{NET}{holder}\ndef train(): return held", BASE=_of_keras({})))


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ({"module": "__main__", "class_name": "Net", "registered_name": "Net"}, "Net"),
        ({"module": None, "class_name": "Net", "registered_name": "mine>Net"}, "mine>Net"),
        (
            {"module": "builtins", "class_name": "function", "config": "my_loss", "registered_name": "function"},
            "my_loss",
        ),
    ],
)
def test_a_model_of_keras_with_a_custom_part_is_refused(part: dict[str, Any], named: str) -> None:
    model = _of_keras({"module": "keras", "class_name": "Sequential", "config": {"layers": [part]}})()
    with pytest.raises(FunctionError, match=rf"global 'held\[0\]' .* has {named}, which executors do not know"):
        pickled(cell("def train(): return held", held=[model]))


def test_custom_classes_and_other_objects_of_them_travel() -> None:
    pickled(cell(f"{NET.replace('Net()', '0')}def train(): return Net, Holder", BASE=object))
    callback = type("Callback", (), {"__module__": "keras.src.callbacks.callback"})
    callback.__module__ = "__main__"
    pickled(cell("held = [Callback()]\ndef train(): return held", Callback=callback))
