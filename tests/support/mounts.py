"""A folder on which another one is mounted."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparktrain.store import folder_removal


@contextmanager
def bound(source: Path, target: Path) -> Iterator[Path]:
    """Bind `source` to the folder `target`, with the same device; without the right to mount, it only seems so."""
    mount = subprocess.run(["mount", "--bind", source, target], check=False, stderr=subprocess.DEVNULL)
    if mount.returncode == 0:
        try:
            yield target
        finally:
            subprocess.run(["umount", "-l", target], check=True)
        return
    for file in source.iterdir():
        os.link(file, target / file.name)
    number, mount_of = target.stat().st_ino, folder_removal.mount_of
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            folder_removal,
            "mount_of",
            lambda descriptor: (0, 1) if os.fstat(descriptor).st_ino == number else mount_of(descriptor),
        )
        yield target
