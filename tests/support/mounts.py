"""A folder on which another one is mounted."""

import errno
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
    number, mount_of, rename = target.stat().st_ino, folder_removal.mount_of, os.rename

    def seeming(descriptor: int) -> tuple[int, int]:
        return (0, 1) if os.fstat(descriptor).st_ino == number else mount_of(descriptor)

    def busy(name: str, new: str, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        if os.stat(name, dir_fd=src_dir_fd, follow_symlinks=False).st_ino == number:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), name)
        rename(name, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(folder_removal, "mount_of", seeming)
        patched.setattr(os, "rename", busy)
        yield target
