"""1 GiB to HDFS and back through the store, digests included, beside `hdfs dfs -put` and `-get` on the same cluster.

    python -m benchmarks.hdfs_throughput [--rounds 3] [--mib 1024]

Two DataNodes and two replicas on this machine. Hadoop's own tool starts a JVM for each file, as it does for its users.
The bare client is the library below the store, with neither digest, nor deadlines, nor an fsync.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.machine import at_least, show
from sparktrain.store.base import PIECE_BYTES, Store
from sparktrain.store.url import open_store
from tests.support.hadoop import Hdfs, hdfs

TARGET = 1.2
MIB = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mib", type=int, default=1024)
    given = parser.parse_args()
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as name, hdfs(Path(name) / "hdfs") as cluster:
        source = Path(name) / "source"
        _make(source, given.mib)
        taken: dict[str, list[float]] = {"put": [], "get": [], "write": [], "read": [], "bare": []}
        for turn in range(given.rounds):  # in turn, so that changes of the machine's load affect all alike
            for what, seconds in _round(cluster, source, turn).items():
                taken[what].append(given.mib * MIB / seconds / 1e6)
    rates = {what: median(found) for what, found in taken.items()}
    rows = [
        _row("store, write and SHA-256", taken["write"], rates["write"] / rates["put"]),
        _row("hdfs dfs -put", taken["put"]),
        _row("the bare client, write", taken["bare"], rates["bare"] / rates["put"], ""),
        _row("store, read and SHA-256", taken["read"], rates["read"] / rates["get"]),
        _row("hdfs dfs -get", taken["get"]),
    ]
    title = f"{given.mib} MiB to HDFS and back, two replicas, {given.rounds} rounds"
    show(title, ("", "median", "all", "of Hadoop's own", "target"), rows)


def _make(path: Path, mib: int) -> None:
    block = os.urandom(MIB)
    with path.open("wb") as file:
        for number in range(mib):
            file.write(number.to_bytes(8, "big") + block[8:])


def _round(cluster: Hdfs, source: Path, turn: int) -> dict[str, float]:
    store, target = open_store(f"{cluster.url}/store"), source.with_name("target")
    path, rival = f"file-{turn}", f"/put-{turn}"
    digest = ""

    def write() -> None:
        nonlocal digest
        digest = _write(store, path, source)

    taken = {
        "write": _seconds(write),
        "bare": _seconds(lambda: _bare(cluster, f"/bare-{turn}", source)),
        "put": _seconds(lambda: cluster.cli("-put", str(source), rival)),
        "read": _seconds(lambda: _check(store, path, target, digest)),
        "get": _seconds(lambda: cluster.cli("-get", rival, f"{target}.got")),
    }
    store.delete(path)
    cluster.cli("-rm", "-skipTrash", rival, f"/bare-{turn}")
    target.unlink()
    Path(f"{target}.got").unlink()
    return taken


def _write(store: Store, path: str, source: Path) -> str:
    new = store.create(path)
    with source.open("rb", buffering=0) as file:
        while piece := file.read(PIECE_BYTES):
            new.write(piece)
    return new.publish().sha256


def _bare(cluster: Hdfs, path: str, source: Path) -> None:
    from hdfs_native import Client, WriteOptions

    client = Client(cluster.url, {"dfs.replication": "2"}).inner
    writer = client.create(path, WriteOptions(overwrite=False, create_parent=True))
    with source.open("rb", buffering=0) as file:
        while piece := file.read(PIECE_BYTES):
            writer.write(piece)
    writer.close()


def _check(store: Store, path: str, target: Path, digest: str) -> None:
    import hashlib

    found = hashlib.sha256()
    with target.open("wb", buffering=0) as file:
        for piece in store.pieces(path):
            found.update(piece)
            file.write(piece)
    assert found.hexdigest() == digest


def _seconds(work: Callable[[], object]) -> float:
    started_at = time.perf_counter()
    work()
    return time.perf_counter() - started_at


def _row(name: str, rates: list[float], ratio: float | None = None, target: str | None = None) -> tuple[str, ...]:
    each = ", ".join(f"{rate:.0f}" for rate in rates)
    cells = ("", "") if ratio is None else (f"{ratio:.2f}", at_least(ratio, TARGET) if target is None else target)
    return (name, f"{median(rates):.0f} MB/s", each, *cells)


if __name__ == "__main__":
    main()
