"""What a zygote, or the process that it is forked from, imports, and its memory, arranged so that a fork and the exit
of the forked process cost little.

A process that has imported TensorFlow and Keras has about 70,000 pages of its own. Each fork copies an entry for each,
and each exit drops it: several milliseconds of a core for both. A huge page is one entry in place of 512.
"""

import ctypes
import gc
import importlib
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path

from msgspec import Struct

_MADV_COLLAPSE = 25
"""Needs Linux 6.1. Older kernels refuse it, and forks stay expensive."""
_FULL = 0.9
"""The resident share of a region from which it is collapsed: collapsing adds the rest to memory."""
_SMAPS = Path("/proc/self/smaps")
HUGE_PAGE = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
"""The file with the size of a huge page, in bytes; missing where the kernel has none."""

_ARENA_BYTES = 2**20
"""Python maps memory for small objects in arenas of this size, and unmaps one in which no block is used."""
_BLOCK_BYTES = 512
"""The largest block of an arena."""
_RESERVED = {"tensorflow": 112 * 2**20}
"""What the small objects of an import need, from `sys._debugmallocstats()`, of those that need much."""

_IN_RINGS_OF = {"horovod.tensorflow", "keras"}
_IN_RINGS = ("keras.glue", "keras.healing.surviving_fit", "tensorflow.collectives.horovod_ring",
             "tensorflow.data.tensorflow_feeds", "tensorflow.healing.graph_step",
             "tensorflow.horovod_names.tensorflow_names")  # fmt: skip
"""What each member of a ring of Horovod would import of this package, in 0.1 s: the next process of a lost member too,
for which all others wait."""

_pins: list[bytes] = []
"""A block in each reserved arena, which keeps it."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Region(Struct, frozen=True):
    """A range of addresses, in bytes."""

    start: int
    size: int


def preload(modules: Collection[str]) -> dict[str, str]:
    """Import `modules`, and arrange the memory; returns those that failed, with reasons. At once where all are here."""
    importlib.invalidate_caches()
    if all(name in sys.modules for name in modules):
        return {}
    gc.disable()  # modules stay; collecting takes a fifth of the import of TensorFlow
    reserve(modules)
    failed: dict[str, str] = {}
    for name in modules:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:
            failed[name] = f"{type(error).__name__}: {error}"
    if sys.modules.keys() >= _IN_RINGS_OF:
        for name in _IN_RINGS:
            with suppress(Exception):  # it happens again in the member, and is reported
                importlib.import_module(f"sparktrain.training.frameworks.{name}")
    arrange()
    gc.enable()
    return failed


def arrange(huge_page: Path = HUGE_PAGE) -> None:
    """Exempt all objects that exist now from garbage collection, and move them to huge pages where possible.

    A collection in a forked process would otherwise visit, and so copy, everything that the zygote has imported. Call
    it before a fork, in a process with one Python thread. Blocks for some tenths of a second after an import of
    TensorFlow. Raises nothing: without huge pages (the file `huge_page` has their size) a fork costs more.
    """
    gc.freeze()
    try:
        page = int(huge_page.read_text())
        regions = list(collapsible(_SMAPS.read_text(errors="replace"), page))
    except (OSError, ValueError):
        return
    for region in regions:
        _LIBC.madvise(region.start, region.size, _MADV_COLLAPSE)


def reserve(modules: Collection[str]) -> None:
    """Map the memory for the small objects of `modules` in one piece, before they are imported.

    The import would otherwise spread it over a hundred places between the libraries, too small for huge pages. Nothing
    is reserved for a module that is imported already, or not installed.
    """
    needed = [size for name, size in _RESERVED.items() if name in modules and _is_new(name)]
    arenas = sum(needed) // _ARENA_BYTES
    blocks = [bytes(_BLOCK_BYTES - sys.getsizeof(b"")) for _ in range(arenas * _ARENA_BYTES // _BLOCK_BYTES)]
    _pins.extend(blocks[:: _ARENA_BYTES // _BLOCK_BYTES // 2])


def _is_new(module: str) -> bool:
    return module not in sys.modules and PathFinder.find_spec(module) is not None


def collapsible(smaps: str, page: int) -> Iterator[Region]:
    """The regions of whole huge pages of `page` bytes in private anonymous memory that is nearly all resident.

    `smaps` is the text of `/proc/PID/smaps`.
    """
    start = end = 0
    for line in smaps.splitlines():
        name, *fields = line.split()
        if not name.endswith(":"):
            start, end = _bounds(name) if _is_heap(fields) else (0, 0)
        elif name == "Rss:" and end and int(fields[0]) * 1024 >= _FULL * (end - start):
            first = -(-start // page) * page
            last = end // page * page
            if first < last:
                yield Region(first, last - first)


def _bounds(addresses: str) -> tuple[int, int]:
    start, _, end = addresses.partition("-")
    return int(start, 16), int(end, 16)


def _is_heap(fields: list[str]) -> bool:
    """Of a mapping: permissions, offset, device, inode and, if it has one, a name."""
    return fields[0] == "rw-p" and fields[3] == "0" and fields[4:] in ([], ["[heap]"])
