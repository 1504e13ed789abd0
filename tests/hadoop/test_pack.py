"""A pack runs where there is nothing of the Python that it was made from."""

import os
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

from sparktrain.driver.submitted_jobs.env_pack.pack import pack
from sparktrain.store.url import open_store
from tests.hadoop.commands import SMALL

PROGRAM = """
import bz2, ctypes, hashlib, lzma, sqlite3, ssl, subprocess, sys, zlib
import cloudpickle, cryptography.x509, grpc, hdfs_native, msgspec, numpy, psutil, pyarrow, sparktrain.store.hadoop.hdfs
assert sys.prefix == sys.base_prefix == {home!r}, sys.prefix
again = subprocess.run([sys.executable, "-c", "print(6 * 7)"], env={{}}, capture_output=True, text=True, check=True)
assert again.stdout == "42\\n", again
try:
    import pyspark
except ImportError:
    print("whole")
"""


def origins() -> list[str]:
    """The folders that the pack was made from, as far as a machine can do without them."""
    base = sysconfig.get_path("stdlib") if sys.base_prefix == "/usr" else sys.base_prefix
    return sorted({base, sys.prefix})


def test_a_pack_is_there_once_and_is_known_before_it_is_made(packs: str) -> None:
    again = pack(SMALL, packs, lambda size, total: pytest.fail("nothing is packed again"))
    assert not again.uploaded
    assert open_store(packs).list() == [again.contents.archive]


def test_it_runs_where_nothing_is_left_of_its_origin(packs: str, tmp_path: Path) -> None:
    store, [name] = open_store(packs), open_store(packs).list()
    archive, home = tmp_path / "pack.tar.gz", tmp_path / "environment"
    with archive.open("wb") as file:
        file.writelines(store.pieces(name))
    with tarfile.open(archive) as found:
        found.extractall(home, filter="tar")
    (tmp_path / "program.py").write_text(PROGRAM.format(home=str(home)))
    hidden = " && ".join(f"mount -t tmpfs none {folder}" for folder in origins())
    inside = f"{hidden} && cd {tmp_path} && exec /usr/bin/env -i ./environment/bin/python program.py"
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", inside],
        env={"PATH": os.defpath + ":/usr/sbin:/sbin"}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == "whole\n", done.stderr
