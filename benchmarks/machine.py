"""The machine of a benchmark, and a table of its measurements."""

import os
import platform
from collections.abc import Iterable, Sequence
from importlib import metadata

from rich.console import Console
from rich.table import Table

PACKAGES = (
    "sparktrain",
    "pyspark",
    "tensorflow",
    "keras",
    "torch",
    "jax",
    "pyarrow",
    "grpcio",
    "msgspec",
    "scikit-learn",
    "joblib",
    "ray",
    "hyperopt",
)


_WIDTH = 100
"""Width of everything that is printed, independent of the terminal."""
_LOAD = os.getloadavg()[0]


def machine() -> str:
    """Processor, memory and versions, in one line."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next(
            (line.split(":")[1].strip() for line in file if line.startswith("model name")), "unknown processor"
        )
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return (
        f"{os.cpu_count()} cores of {model}, {gib:.0f} GiB, load {_LOAD:.1f} at the start; "
        f"Linux {platform.release()}, Python {platform.python_version()}, {', '.join(versions)}"
    )


def at_most(value: float, limit: float, unit: str = "") -> str:
    """The cell of a target: the limit, and whether `value` meets it."""
    return f"at most {limit:g}{unit}: {'met' if value <= limit else 'missed'}"


def at_least(value: float, limit: float) -> str:
    """Like `at_most`, for a lower limit."""
    return f"at least {limit:,g}: {'met' if value >= limit else 'missed'}"


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> None:
    """Print one table with the machine below it."""
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console = Console(width=_WIDTH, markup=False, highlight=False)
    console.print(table)
    for line in filter(None, (note, machine())):
        console.print(line)
