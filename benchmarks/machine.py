"""What a benchmark ran on, and a table of what it measured."""

import os
import platform
from collections.abc import Iterable, Sequence
from importlib import metadata

from rich.console import Console
from rich.table import Table

PACKAGES = ("sparktrain", "pyspark", "tensorflow", "keras", "grpcio", "msgspec", "ray", "hyperopt")


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
    load = os.getloadavg()[0]
    return (
        f"{len(os.sched_getaffinity(0))} cores of {model}, {gib:.0f} GiB, load {load:.1f} at the start; "
        f"Linux {platform.release()}, Python {platform.python_version()}, {', '.join(versions)}"
    )


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> None:
    """Print one table with the machine below it."""
    table = Table(title=title, title_justify="left", caption=f"{note}\n{machine()}".strip(), caption_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*row)
    Console(width=120).print(table)
