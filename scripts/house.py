"""Figures of the source tree, each with a bound: `make house` prints them, and fails where one is beyond its bound.

A change that improves a figure moves its bound in FIGURES too, so that it stays. The goal is where the bound is going.
"""

import ast
import io
import sys
import tokenize
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn
from unittest.mock import patch

import grimp
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from sparktrain import local, sweep
from sparktrain.driver.coordinator import Coordinator
from sparktrain.driver.run_request import RunRequest

ROOT = Path(__file__).parents[1]
PACKAGE = "sparktrain"
PLACEHOLDERS = frozenset(
    (
        "another",
        "asked",
        "beside",
        "both",
        "each",
        "few",
        "found",
        "given",
        "gone",
        "got",
        "had",
        "has",
        "here",
        "kept",
        "known",
        "left",
        "made",
        "many",
        "meant",
        "more",
        "once",
        "other",
        "others",
        "ours",
        "own",
        "rest",
        "said",
        "same",
        "seen",
        "taken",
        "theirs",
        "then",
        "there",
        "this",
        "told",
        "wanted",
        "what",
        "which",
        "who",
        "whole",
    )
)
"""Words that do not name what a variable holds."""
MEMBER_OPTION = "log_limit"
"""The option of a member that is counted: it takes the way of all others, and its name stands for nothing else."""
GENERATED = "config/call_arguments.py"
WIDE = 12
"""Fields of the widest class that a reader still keeps in mind."""
MEMBERSHIP = frozenset(
    (
        "Doubts",
        "MemberAdopted",
        "MemberDoubts",
        "MemberStands",
        "RenameMember",
        "Seating",
        "Standing",
    )
)
"""The messages by which a gang changes who its members are, at both ends of an agent."""
SUBJECTS = {
    "elastic": (
        "state.losses",
        "state.seats",
        "training.collectives.continuity",
        "training.collectives.ring_healing",
        "training.elastic",
        "training.elastic_state",
        "training.frameworks.jax.keras_healing",
        "training.frameworks.keras.boundary_callback",
        "training.frameworks.keras.healing",
        "training.frameworks.keras.healing_callback",
        "training.frameworks.tensorflow.healing",
        "training.frameworks.tensorflow.horovod_names.elastic",
        "training.frameworks.torch.horovod_elastic",
        "training.frameworks.torch.keras_step",
        "training.frameworks.torch.torch_loop",
    ),
    "slow": (
        "runs.steps",
        "state.gangs.stragglers",
        "training.collectives.step_notes",
        "training.host_limits",
    ),
    "memory": (
        "executor.memory_holder",
        "state.gangs.memory_parts",
        "state.memory_snapshots",
        "training.checkpoint.held_parts",
        "training.checkpoint.memory_checkpoints",
        "training.checkpoint.memory_saver",
        "training.checkpoint.sent_files",
    ),
}
"""What gangs do that a reader of other modules should not have to know: how they change, what makes them slow, and
their checkpoints in memory. The modules and packages of each."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number of the tree."""

    name: str
    bound: float
    goal: float
    at_least: bool = False
    """The figure must not fall below its bound; otherwise it must not exceed it."""

    def holds(self, value: float) -> bool:
        """Whether `value`, as it is printed, is within the bound."""
        return round(value, 1) >= self.bound if self.at_least else round(value, 1) <= self.bound


FIGURES = {
    "placeholders": Figure(name="placeholder names, % of assigned names", bound=0.1, goal=0.5),
    "parallel": Figure(name="parallel assignments per 1,000 statements", bound=0.2, goal=1),
    "wide": Figure(name=f"classes above {WIDE} fields", bound=2, goal=6),
    "widest": Figure(name="fields of the widest class", bound=19, goal=20),
    "protocols": Figure(name="Protocols", bound=7, goal=30),
    "circles": Figure(name="modules in circles of imports", bound=0, goal=0),
    "frames": Figure(name="frames from sweep to the coordinator's loop", bound=5, goal=6),
    "comments": Figure(name="lines of comments per 1,000 lines", bound=8.8, goal=10, at_least=True),
    "option": Figure(name="files that a new option of a member touches", bound=3, goal=3),
    "entries": Figure(name="entries at the top of the package", bound=30, goal=30),
    "elastic": Figure(name="modules that import how gangs change", bound=16, goal=6),
    "slow": Figure(name="modules that import what makes them slow", bound=12, goal=8),
    "memory": Figure(name="modules that import checkpoints in memory", bound=14, goal=8),
    "membership": Figure(name="messages of membership", bound=7, goal=8),
    "callables": Figure(name="parameters and fields that are Callable", bound=448, goal=400),
    "inherited": Figure(name="docstrings that are See base class.", bound=467, goal=400),
    "lines": Figure(name="lines of source", bound=129_525, goal=85_300),
}


def measure(sources: Iterable[str]) -> dict[str, float]:
    """The figures that the text of modules has, by their keys in FIGURES."""
    counts = Counter[str]()
    widths: list[int] = []
    for source in sources:
        counts["lines"] += source.count("\n")
        counts["inherited"] += source.count('"""See base class."""')
        counts["comments"] += sum(_is_comment_line(token) for token in _tokens(source))
        for node in ast.walk(ast.parse(source)):
            names = list(assigned_names(node))
            counts["names"] += len(names)
            counts["placeholders"] += sum(is_placeholder(name) for name in names)
            counts["statements"] += isinstance(node, ast.stmt)
            counts["parallel"] += is_parallel(node)
            counts["callables"] += is_callable(node)
            counts["membership"] += isinstance(node, ast.ClassDef) and node.name in MEMBERSHIP
            if isinstance(node, ast.ClassDef):
                protocol = any(_is_protocol(base) for base in node.bases)
                counts["protocols"] += protocol
                widths.append(0 if protocol else _fields(node))
    return {
        "placeholders": 100 * counts["placeholders"] / max(1, counts["names"]),
        "parallel": 1000 * counts["parallel"] / max(1, counts["statements"]),
        "wide": sum(width > WIDE for width in widths),
        "widest": max(widths, default=0),
        "protocols": counts["protocols"],
        "comments": 1000 * counts["comments"] / max(1, counts["lines"]),
        **{key: counts[key] for key in ("callables", "inherited", "lines", "membership")},
    }


def assigned_names(node: ast.AST) -> Iterator[str]:
    """The names that a statement, a loop or an expression gives a value; not those of parameters."""
    match node:
        case ast.Assign(targets=targets):
            for target in targets:
                yield from _names(target)
        case ast.AnnAssign() | ast.AugAssign() | ast.NamedExpr() | ast.For() | ast.AsyncFor() | ast.comprehension():
            yield from _names(node.target)
        case ast.withitem(optional_vars=ast.expr() as target):
            yield from _names(target)
        case ast.ExceptHandler(name=str(name)):
            yield name


def is_placeholder(name: str) -> bool:
    """Whether a name is one of PLACEHOLDERS, with or without underscores around it."""
    return name.strip("_") in PLACEHOLDERS


def is_parallel(node: ast.AST) -> bool:
    """Whether a statement assigns several values to as many names, and does not swap them."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            return {ast.unparse(target) for target in targets} != {ast.unparse(value) for value in values}
    return False


def is_callable(node: ast.AST) -> bool:
    """Whether a parameter, a field or a variable has an annotation with `Callable`."""
    match node:
        case ast.arg(annotation=ast.expr() as annotation) | ast.AnnAssign(annotation=annotation):
            return "Callable" in ast.unparse(annotation)
    return False


def importers(graph: grimp.ImportGraph, subject: Iterable[str]) -> set[str]:
    """The modules outside of `subject`, packages and modules of PACKAGE, that import one of its modules."""
    names = tuple(f"{PACKAGE}.{name}" for name in subject)
    inside = {
        module for module in graph.modules if module in names or module.startswith(tuple(f"{name}." for name in names))
    }
    return {importer for module in inside for importer in graph.find_modules_that_directly_import(module)} - inside


def circles(graph: grimp.ImportGraph) -> list[list[str]]:
    """The modules that import each other in a circle, lazily and for types too; each circle sorted."""
    modules = sorted(graph.modules)
    numbers = {module: number for number, module in enumerate(modules)}
    edges = [
        (numbers[module], numbers[to]) for module in modules for to in graph.find_modules_directly_imported_by(module)
    ]
    rows = [edge[0] for edge in edges]
    columns = [edge[1] for edge in edges]
    matrix = csr_matrix(([1] * len(edges), (rows, columns)), shape=(len(modules), len(modules)))
    _, labels = connected_components(matrix, connection="strong")
    members: dict[int, list[str]] = {}
    for module, label in zip(modules, labels, strict=True):
        members.setdefault(int(label), []).append(module)
    return [circle for circle in members.values() if len(circle) > 1]


def files_with(option: str, package: Path) -> list[Path]:
    """The files of a package that contain the name of an option; not GENERATED, which a command writes."""
    sources = sorted(package.rglob("*.py"))
    return [path for path in sources if option in path.read_text() and path != package / GENERATED]


def entries(package: Path) -> set[str]:
    """The packages and modules at the top of a package."""
    return {path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}


def frames_to_the_loop() -> list[str]:
    """The functions from the public `sweep` to the coordinator's loop, as `frames_from` counts them, and the loop.

    Measured on a call of `sweep` on this machine's slots, in which the loop (`Coordinator.run`) ends at once. The loop
    runs in a thread of its own, so the stack is the caller's at the moment when it makes the loop's coroutine.
    """
    stacks: list[traceback.StackSummary] = []

    def record(coordinator: Coordinator, work: RunRequest) -> NoReturn:
        stacks.append(traceback.extract_stack())
        raise _LoopReachedError

    with TemporaryDirectory() as folder, patch.object(Coordinator, "run", record), suppress(_LoopReachedError):
        sweep(_train, {"x": [1]}, metric="y", mode="max", spark=local(1), dir=folder, preload=[], progress=False)
    [stack] = stacks
    return [*frames_from("api.sweep", stack), "coordinator.run"]


def frames_from(function: str, stack: Iterable[traceback.FrameSummary]) -> list[str]:
    """The functions of sparktrain on a stack, as `module.name`, from `function` on.

    Frames of other packages do not count, nor those above the body of `function`, such as its decorator's.
    """
    paths = [(Path(frame.filename), frame.name) for frame in stack]
    functions = [f"{path.stem}.{name}" for path, name in paths if path.is_relative_to(ROOT / PACKAGE)]
    return functions[functions.index(function) :]


class _LoopReachedError(Exception):
    """A call has come as far as the coordinator's loop."""


def _train(x: int) -> float:
    """The function of that call, which no trial runs."""
    return float(x)


def _names(target: ast.expr) -> Iterator[str]:
    match target:
        case ast.Name(id=name):
            yield name
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            for part in targets:
                yield from _names(part)
        case ast.Starred(value=value):
            yield from _names(value)


def _is_protocol(base: ast.expr) -> bool:
    return ast.unparse(base).partition("[")[0].rpartition(".")[2] == "Protocol"


def _fields(node: ast.ClassDef) -> int:
    annotated = [statement for statement in node.body if isinstance(statement, ast.AnnAssign)]
    return sum("ClassVar" not in ast.unparse(field.annotation) for field in annotated)


def _is_comment_line(token: tokenize.TokenInfo) -> bool:
    """Whether a token is a comment in a line of its own, which is no divider."""
    return token.type == tokenize.COMMENT and token.line.lstrip().startswith("# ") and "----" not in token.string


def _tokens(source: str) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(source).readline)


def main() -> int:
    """Print each figure; 1 where one is beyond its bound."""
    figures = measure(path.read_text() for path in sorted((ROOT / PACKAGE).rglob("*.py")))
    frames = frames_to_the_loop()
    figures["frames"] = len(frames)
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    found_circles = circles(graph)
    figures |= {key: len(importers(graph, subject)) for key, subject in SUBJECTS.items()}
    figures["option"] = len(files_with(MEMBER_OPTION, ROOT / PACKAGE))
    figures["entries"] = len(entries(ROOT / PACKAGE))
    figures["circles"] = sum(len(circle) for circle in found_circles)
    print(f"{'figure':45}{'now':>10}{'bound':>10}{'goal':>10}")
    for key, figure in FIGURES.items():
        print(f"{figure.name:45}{figures[key]:>10,.1f}{figure.bound:>10,g}{figure.goal:>10,g}")
    for circle in found_circles:
        print("circle:", ", ".join(circle))
    print("frames:", ", ".join(frames))
    beyond = [figure for key, figure in FIGURES.items() if not figure.holds(figures[key])]
    for figure in beyond:
        print(f"{figure.name}: beyond its bound ({figure.bound:g}) in {Path(__file__).name}", file=sys.stderr)
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
