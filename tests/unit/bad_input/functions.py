"""Bad training functions: how they are called, named and sent."""

import functools
import os
import threading
from collections.abc import Callable, Iterator

import numpy as np

from sparktrain.driver.options import SweepOptions
from sparktrain.driver.prepare.checked_call import compose
from sparktrain.errors import FunctionError
from sparktrain.search.space import grid, when
from sparktrain.usercode.serialize import pack
from sparktrain.usercode.target import Target, check_call, resolve
from tests.unit.bad_input.case import Case, Files

LOCK = threading.Lock()


class Opaque:
    def __call__(self, lr: float) -> float:
        return lr

    @property
    def __signature__(self) -> None:
        raise ValueError("none")


class Trainer:
    def __init__(self) -> None:
        self.log = {"lock": LOCK}

    def train(self, lr: float) -> object:
        return self.log


def train(lr: float, dropout: float = 0.5, ctx: object = None) -> float:
    return lr


async def coroutine(lr: float) -> float:
    return lr


def generator(lr: float) -> Iterator[float]:
    yield lr


def positional(lr: float, /) -> float:
    return lr


def variadic(*args: float) -> float:
    return sum(args)


def needs_both(lr: float, dropout: float) -> float:
    return lr * dropout


def local_function(**captured: object) -> Callable[..., object]:
    """A function defined as in a notebook, with `captured` as its globals."""
    names = {"__name__": "__main__", **captured}
    exec("def train(lr):\n    return " + ", ".join(captured), names)
    return names["train"]


def closure() -> Callable[..., object]:
    values = (number for number in range(3))
    return lambda lr: values


def call(id: str, function: object, names: str, *patterns: str) -> Case:
    case = dict.fromkeys(names.split(), 1)
    return Case(f"call-{id}", lambda _: check_call(function, [case]), patterns, FunctionError)


def target(id: str, name: str, content: str, *patterns: str, function: str = "train") -> Case:
    return Case(
        f"target-{id}", lambda files: resolve(f"{files.write(name, content)}:{function}"), patterns, FunctionError
    )


def named(id: str, text: str, *patterns: str) -> Case:
    return Case(f"target-{id}", lambda files: resolve(text.format(folder=files.folder)), patterns, FunctionError)


def pickled(id: str, make: Callable[[], Callable[..., object]], *patterns: str) -> Case:
    return Case(f"pickle-{id}", lambda _: pack(make()), patterns, FunctionError)


CALL = [
    call(
        "not-callable",
        "train",
        "lr",
        "the training function",
        r"'train' \(str\)",
        "cannot be called",
        "pass the function",
    ),
    call("class", Trainer, "lr", "the class Trainer", "creates an object", "pass a function"),
    call(
        "coroutine", coroutine, "lr", r"coroutine\(\) \(functions.py:", "coroutine function", "in place of `async def`"
    ),
    call("generator", generator, "lr", r"generator\(\)", "generator function", "ctx.report"),
    call("partial-generator", functools.partial(generator), "lr", r"generator\(\)", "generator function"),
    call("no-signature", Opaque(), "lr", "the training function", "no signature", "wrap it"),
    call(
        "unknown",
        train,
        "lr droput",
        r"train\(\)",
        "'droput'",
        "did you mean 'dropout'",
        "it takes lr, dropout",
        "rename",
    ),
    call("missing", needs_both, "lr", r"needs_both\(\)", "'dropout' has no value", "{'lr': 1}", "add 'dropout'"),
    call("missing-all", needs_both, "", r"needs_both\(\)", "'lr' has no value in an empty case"),
    call("positional", positional, "lr", r"positional\(\)", "'lr' is positional-only", "remove the '/'"),
    call("variadic", variadic, "lr", r"variadic\(\)", "positional arguments only", r"def train\(lr\)"),
    call("ctx", train, "lr ctx", r"train\(\)", "'ctx' is passed by sparktrain", "choose another name"),
    call("self", Trainer.train, "lr", r"Trainer\.train\(\)", "without its object", r"Trainer\(\)\.train"),
    Case(
        "call-conditional",
        lambda _: check_call(needs_both, grid(lr=[1, 2], dropout=when(lambda p: p["lr"] == 1, [0.5]))),
        ("'dropout' has no value", "{'lr': 2}", "or a default"),
        FunctionError,
    ),
    Case(
        "call-and-mode",
        lambda _: compose(train, {"rate": [1]}, SweepOptions(metric="y")),
        ("^metric 'y'.*--mode", "; and .*train.* has no parameter 'rate'"),
    ),
    Case("call-of-none", lambda _: Target.of(None), (r"None \(NoneType\)", "cannot be called"), FunctionError),
]

TARGET = [
    named("no-function", "train.py", r"^train\.py", "names no function", r"write train\.py:FUNCTION"),
    *(
        target(f"unnamed-{name}", "script.py", source, rf"script\.py:{suggested}$", function="")
        for name, source, suggested in (
            ("parser-first", "def parse(argv=None): ...\ndef train(lr): ...", "train"),
            ("context", "def parse(argv): ...\ndef train(): ...\ndef mnist(lr, *, ctx): ...", "mnist"),
            ("data-first", "def load_train_data(path): ...\nasync def fit(x): ...\ndef fit_one(lr): ...", "fit_one"),
            (
                "unclear",
                "def parse(argv): ...\ndef _train(): ...\ndef mnist(lr): ...",
                r"FUNCTION \(it has parse, mnist\)",
            ),
            ("cut", "def train(:", "FUNCTION"),
        )
    ),
    named("empty-function", "train.py:", r"^train\.py:", "names no function"),
    named("missing", "{folder}/train.py:train", r"train\.py", "no such file", "correct the path"),
    named("folder", "{folder}:train", "is a directory", r"train\.py:FUNCTION"),
    named("notebook", "{folder}/a.ipynb:train", r"a\.ipynb", r"ends in \.py", "nbconvert"),
    named("no-module", "no_such_package.train:train", "no module 'no_such_package'", "correct the name"),
    named("no-submodule", "sparktrain.nothing:train", "no module 'sparktrain.nothing'", "correct the name"),
    named("not-a-module", "a-b:train", "neither a file nor a module", r"FILE\.py:FUNCTION"),
    target("file-name", "my-train.py", "", r"my-train\.py", "'my-train' cannot be", r"rename it to my_train\.py"),
    target("keyword-name", "class.py", "", r"class\.py", "'class' cannot be", r"rename it to train_class\.py"),
    target("library-name", "random.py", "", r"random\.py", "another module is called 'random'", "rename the file"),
    target("preloaded-name", "keras.py", "", r"keras\.py", "another module is called 'keras'", "rename the file"),
    target(
        "syntax", "bad_a.py", "x = 1\ndef train(:\n", r"bad_a\.py:2", "invalid syntax", "def train", "correct the line"
    ),
    target(
        "raises",
        "bad_b.py",
        "def f():\n    1 / 0\nf()\n",
        r"bad_b\.py",
        "ZeroDivisionError",
        "line 3.*line 2",
        "__main__",
    ),
    target("exits", "bad_c.py", "import sys\nsys.exit(2)\n", r"bad_c\.py", "SystemExit: 2", "__main__"),
    target("import", "bad_d.py", "import no_such_thing\n", r"bad_d\.py", "no_such_thing", "install", "line 1"),
    target("relative", "bad_e.py", "from .x import y\n", r"bad_e\.py", "relative import", r"package\.module:function"),
    target(
        "no-such", "bad_f.py", "def trian(): pass\ndef _x(): pass\n", "'train'", "did you mean 'trian'", "it has trian"
    ),
    target(
        "not-callable", "bad_g.py", "train = 3\ndef f(): pass\n", "'train' is 3", "a function is expected", "it has f"
    ),
    target("class", "bad_h.py", "class train: pass\n", "the class train", "pass a function"),
    target("null-byte", "bad_i.py", "x = 1\0\n", r"bad_i\.py", "null bytes", "correct"),
]


def pack_open_file(_: Files) -> object:
    with open(os.devnull, "wb") as out:
        return pack(local_function(out=out))


def spark_context() -> object:
    """An object with a type that looks like Spark's."""
    return type("SparkContext", (), {"__module__": "pyspark.core.context"})()


def zeros(mib: int) -> np.ndarray:
    return np.zeros(mib * 2**20, np.uint8)


PICKLE = [
    pickled(
        "lock",
        lambda: local_function(lock=LOCK),
        r"train\(\)",
        r"global 'lock' \(_thread.lock\)",
        "line 2",
        "make locks",
    ),
    pickled(
        "nested", lambda: local_function(state={"a": [LOCK]}), r"global \"state\['a'\]\[0\]\"", "_thread.lock", "line 2"
    ),
    pickled(
        "spark", lambda: local_function(sc=spark_context()), "global 'sc'", "SparkContext", "driver alone", "write"
    ),
    pickled("closure", closure, "closure variable 'values'", r"\(generator\)", "cannot be pickled", "pass a list"),
    pickled("default", lambda: lambda lr, lock=LOCK: lr, "default value of parameter 'lock'", "make locks within"),
    pickled("partial", lambda: functools.partial(train, ctx=LOCK), r"train\(\)", "the partial's 'ctx'", "_thread.lock"),
    pickled(
        "method", lambda: Trainer().train, r"Trainer\.train\(\)", r"the method's \"self\.log\['lock'\]\"", "make locks"
    ),
    pickled("callee", lambda: local_function(f=local_function(lock=LOCK)), "global 'lock'", "used by train at line 2"),
    Case("pickle-file", pack_open_file, ("global 'out'", "_io", "open the file within"), FunctionError),
    pickled(
        "large",
        lambda: local_function(a=zeros(61), b=zeros(2)),
        "more than 60 MiB",
        "'a' .* 61.0 MiB, .*'b' .* 2.0 MiB",
    ),
    pickled(
        "large-list", lambda: local_function(a=[bytes(2**20) * 61]), "more than 60 MiB", "'a' .* 61.0 MiB", "load data"
    ),
]

CASES = [*CALL, *TARGET, *PICKLE]
