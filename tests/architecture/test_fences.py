"""Rules that import-linter cannot express: use of standard modules, calls, and sizes.

Each rule has a snippet that breaks it, so that a rule which finds nothing fails too.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import pytest

from tests.support.sources import ROOT, nodes_of, trees_in

Finding = tuple[int, str]
"""A line number and the mistake there."""


@dataclass(frozen=True)
class Fence:
    """A rule for the files in `inside` without those in `but_not`; folders end in a slash."""

    name: str
    find: Callable[[ast.Module], Iterator[Finding]]
    broken_by: str
    inside: tuple[str, ...] = ("sparktrain/",)
    but_not: tuple[str, ...] = ()

    def holds_for(self, path: str) -> bool:
        return path.startswith(self.inside) and not path.startswith(self.but_not)


@cache
def _imports(tree: ast.Module) -> list[Finding]:
    """Line and dotted name of each import."""
    found: list[Finding] = []
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            found += ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found += ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
    return found


def _functions(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions of a file, found in its statements alone: that takes a tenth of the time of `nodes_of`."""
    found: list[ast.AST] = [tree]
    for node in found:
        for part in ("body", "handlers", "orelse", "finalbody", "cases"):
            found += getattr(node, part, ())
    return [node for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def imports_of(*modules: str) -> Callable[[ast.Module], Iterator[Finding]]:
    def find(tree: ast.Module) -> Iterator[Finding]:
        for line, name in _imports(tree):
            if any(name == module or name.startswith(f"{module}.") for module in modules):
                yield line, f"imports {name}"

    return find


OFFERED = (
    "sparktrain.tensorflowonspark",
    "sparktrain.torch.accelerate",
    "sparktrain.torch.checkpoint_folder",
    "sparktrain.torch.lightning",
    "sparktrain.torch.transformers",
)
"""Packages that users import by their own names."""


def imports_of_inner_modules(tree: ast.Module) -> Iterator[Finding]:
    for node in nodes_of(tree):
        if isinstance(node, ast.ImportFrom) and node.module in OFFERED:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sparktrain."):
            yield node.lineno, f"imports from {node.module}"
        elif isinstance(node, ast.Import) and any(alias.name.startswith("sparktrain.") for alias in node.names):
            yield node.lineno, ast.unparse(node)


def uses_of(*names: str) -> Callable[[ast.Module], Iterator[Finding]]:
    ends = {name.rpartition(".")[2] for name in names}

    def find(tree: ast.Module) -> Iterator[Finding]:
        for node in nodes_of(tree):
            end = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None
            if end in ends and (whole := ast.unparse(node)) in names:
                yield node.lineno, f"uses {whole}"
        yield from imports_of(*(name for name in names if "." in name))(tree)

    return find


def raises_of(*names: str) -> Callable[[ast.Module], Iterator[Finding]]:
    def find(tree: ast.Module) -> Iterator[Finding]:
        for node in nodes_of(tree):
            if isinstance(node, ast.Raise) and node.exc:
                error = ast.unparse(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)
                if error in names:
                    yield node.lineno, f"raises {error}"

    return find


def bare_excepts(tree: ast.Module) -> Iterator[Finding]:
    for node in nodes_of(tree):
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield node.lineno, "except without a type"


def long_functions(limit: int) -> Callable[[ast.Module], Iterator[Finding]]:
    def find(tree: ast.Module) -> Iterator[Finding]:
        for node in _functions(tree):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            if lines > limit:
                yield node.lineno, f"{node.name} has {lines} lines, at most {limit}"

    return find


def long_files(limit: int) -> Callable[[ast.Module], Iterator[Finding]]:
    def find(tree: ast.Module) -> Iterator[Finding]:
        last = max((node.end_lineno or 0 for node in tree.body), default=0)
        if last > limit:
            yield last, f"the file has {last} lines, at most {limit}"

    return find


EVERYWHERE = ("sparktrain/", "jobs/", "examples/", "tests/", "benchmarks/")
PROGRAMS = (
    "sparktrain/__main__.py",
    "sparktrain/driver/clustered/application_main.py",
    "sparktrain/training/__main__.py",
    "sparktrain/ml/inference/__main__.py",
    "sparktrain/tensorflowonspark/__main__.py",
    "sparktrain/torch/__main__.py",
)
FENCES = [
    Fence(
        "only clock.py reads time", imports_of("time"), "from time import sleep", but_not=("sparktrain/base/clock.py",)
    ),
    Fence(
        "pure packages have no thread, socket or process",
        imports_of("threading", "socket", "subprocess", "multiprocessing", "concurrent", "asyncio"),
        "import concurrent.futures",
        inside=("sparktrain/state/", "sparktrain/config/", "sparktrain/search/"),
    ),
    Fence(
        "only code at the start of a process uses its environment",
        uses_of("os.environ", "os.environb", "os.getenv", "os.putenv"),
        "import os\nhome = os.environ['HOME']",
        but_not=(
            "sparktrain/views/board/board.py",
            "sparktrain/cli/common.py",
            "sparktrain/cluster/yarn_container.py",
            "sparktrain/cluster/jvm.py",
            "sparktrain/driver/prepare/checked_call.py",  # the address of MLflow, by its own variable
            "sparktrain/driver/clustered/application_start.py",  # what `spark-submit` on this machine reads
            "sparktrain/driver/forwarded_env.py",
            "sparktrain/driver/backend_choice.py",  # what trials on this machine inherit
            "sparktrain/driver/engines/nursery_process.py",
            "sparktrain/cluster/spark_session.py",
            "sparktrain/base/optional_packages.py",  # SPARK_HOME, for a machine that has PySpark there alone
            "sparktrain/executor/log_noise.py",  # TF_CPP_MIN_LOG_LEVEL, by which users choose what is logged
            "sparktrain/executor/nursery.py",
            "sparktrain/executor/spark_task.py",  # the backend of Keras that trials inherit
            "sparktrain/executor/zygote_process.py",
            "sparktrain/ml/inference/backend_setup.py",  # before the import of Keras, which reads its backend there
            "sparktrain/base/nesting.py",
            "sparktrain/base/spans.py",  # the variable that turns spans on in a process
            "sparktrain/protocol/grpc_without_fork_handlers.py",  # for the import of gRPC alone
            "sparktrain/protocol/settings/import_paths.py",  # PYTHONPATH, which is no setting of the script
            "sparktrain/store/hadoop/hadoop_conf.py",
            "sparktrain/store/hadoop/token_file.py",
            "sparktrain/views/webserve/server_process.py",
            "sparktrain/testing/",
            "sparktrain/driver/tracking/notice.py",  # a command of the user gets it, with the notice
            "sparktrain/training/",
            "sparktrain/usercode/serialize.py",  # what must not be sent
            "sparktrain/usercode/import_cache.py",
        ),
    ),
    Fence(
        "only the serializer pickles and only a member unpickles",
        imports_of("cloudpickle", "pickle", "dill", "marshal", "shelve", "sparktrain.protocol.sent_script.CodePickler"),
        "import pickle",
        but_not=(
            "sparktrain/datasets/shared_objects.py",  # X and y of a search; their digest travels with the function
            "sparktrain/usercode/pickler.py",
            "sparktrain/usercode/serialize.py",
            "sparktrain/training/script_loading.py",
            "sparktrain/protocol/row_pickles.py",  # rows of an RDD
            "sparktrain/training/frameworks/torch/distributed_checkpoint.py",  # knows classes of torch alone
            "sparktrain/protocol/sent_script.py",  # names the files of code in what the others pickle
            "sparktrain/training/export.py",  # estimators that skops cannot write; joblib reads them: docs/security.md
            "sparktrain/protocol/settings/parsed_flags.py",  # within that of a function
        ),
    ),
    Fence(
        "one module removes trees of local files, which follows no link and crosses no mount point",
        uses_of("shutil.rmtree", "os.removedirs", "tempfile.TemporaryDirectory"),
        "from shutil import rmtree",
    ),
    Fence(
        "no task loses a cancellation that comes with a result, as wait_for does on Python 3.11",
        uses_of("asyncio.wait_for"),
        "import asyncio\nresult = asyncio.wait_for(work(), 1.0)",
    ),
    Fence(
        "no thread decodes a type that another one prepares",
        uses_of("msgspec.convert", "msgspec.json.decode", "msgspec.msgpack.decode"),
        "import msgspec\nplan = msgspec.json.decode(content, type=Plan)",
        but_not=("sparktrain/base/decoding.py",),  # its docstring has the reason
    ),
    Fence("errors have specific types", raises_of("Exception", "BaseException"), "raise Exception('no')"),
    Fence("each except names its errors", bare_excepts, "try:\n    pass\nexcept:\n    pass"),
    Fence(
        "no call exits the process of the caller",
        uses_of("sys.exit", "exit", "quit"),
        "from sys import exit",
        but_not=PROGRAMS,
    ),
    Fence("no error exits the process of the caller", raises_of("SystemExit"), "raise SystemExit(1)", but_not=PROGRAMS),
    Fence(
        "jobs and examples use public names alone",
        imports_of_inner_modules,
        "from sparktrain.driver.spark_job import start",
        inside=("jobs/", "examples/"),
    ),
    Fence("a function has at most 60 lines", long_functions(60), "def f():\n" + "    pass\n" * 61, inside=EVERYWHERE),
    Fence("a file has at most 600 lines", long_files(600), "pass\n" * 601, inside=EVERYWHERE),
    Fence("a job has at most 40 lines", long_files(40), "pass\n" * 41, inside=("jobs/",)),
]
each_fence = pytest.mark.parametrize("fence", FENCES, ids=lambda fence: fence.name)


@cache
def _files() -> dict[str, ast.Module]:
    found = {path: tree for place in EVERYWHERE for path, tree in trees_in(ROOT / place).items()}
    return {path.relative_to(ROOT).as_posix(): tree for path, tree in found.items()}


@each_fence
def test_a_rule_is_kept(fence: Fence) -> None:
    broken = [
        f"{path}:{line}: {wrong}"
        for path, tree in _files().items()
        if fence.holds_for(path)
        for line, wrong in fence.find(tree)
    ]
    assert not broken, "\n".join([fence.name, *broken])


@each_fence
def test_a_rule_finds_what_breaks_it(fence: Fence) -> None:
    assert list(fence.find(ast.parse(fence.broken_by)))


@each_fence
def test_a_rule_holds_inside_and_not_for_its_exceptions(fence: Fence) -> None:
    assert fence.holds_for(f"{fence.inside[0]}any.py")
    assert not any(fence.holds_for(place) for place in fence.but_not)
