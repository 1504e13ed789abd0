import gc
from pathlib import Path

import pytest

from sparktrain.training import forkable
from sparktrain.training.forkable import Region, collapsible

MIB = 2**20
PAGE = 2 * MIB


def _mapping(start: int, kib: int, resident_kib: int, rest: str) -> str:
    return f"{start:x}-{start + kib * 1024:x} {rest}\nSize: {kib} kB\nRss: {resident_kib} kB\nAnonymous: 0 kB\n"


def test_full_private_memory_is_collapsed_by_whole_huge_pages() -> None:
    smaps = "".join(
        (
            _mapping(4 * MIB + 4096, 8188, 8188, "rw-p 00000000 00:00 0 [heap]"),
            _mapping(16 * MIB, 4096, 4000, "rw-p 00000000 00:00 0"),
        )
    )
    assert list(collapsible(smaps, PAGE)) == [Region(6 * MIB, 6 * MIB), Region(16 * MIB, 4 * MIB)]


@pytest.mark.parametrize(
    ("kib", "resident_kib", "rest"),
    [
        (8192, 100, "rw-p 00000000 00:00 0"),  # the stack of a thread: to collapse it would add memory
        (8192, 8192, "r--p 00000000 00:00 0"),
        (8192, 8192, "rw-s 00000000 00:00 0"),
        (8192, 8192, "rw-p 00000000 fe:00 12 /usr/lib/libtensorflow.so"),
        (8192, 8192, "rw-p 00000000 00:00 0 [stack]"),
        (1024, 1024, "rw-p 00000000 00:00 0"),
    ],
)
def test_other_memory_stays_as_it_is(kib: int, resident_kib: int, rest: str) -> None:
    assert not list(collapsible(_mapping(4 * MIB, kib, resident_kib, rest), PAGE))


def test_a_kernel_without_huge_pages_still_freezes(tmp_path: Path) -> None:
    marker: list[int] = []
    assert any(item is marker for item in gc.get_objects())

    forkable.arrange(tmp_path / "missing")

    assert not any(item is marker for item in gc.get_objects())
