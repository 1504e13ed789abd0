"""Real HDFS and YARN on this machine."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from sparktrain.driver.submitted_jobs.env_pack.pack import pack
from sparktrain.store.url import open_store
from tests.hadoop.commands import SMALL, SMALL_PACKS, TRAINING, TRAINING_PACKS
from tests.support.by_value import by_value as by_value
from tests.support.hadoop import (
    HaHdfs,
    Hdfs,
    Kdc,
    Knobs,
    SecureHdfs,
    Yarn,
    ha_hdfs,
    hdfs,
    kdc,
    secure_hdfs,
    submit,
    yarn,
)

TOKEN_LIFE_S = float(os.environ.get("SPARKTRAIN_TOKEN_LIFE_S", "12"))
"""The life of a delegation token of `secure_cluster`; the environment sets a longer one for a longer test."""

FIRST = Path(__file__).with_name("yarn_first.py")

StartHdfs = Callable[..., Hdfs]
"""Starts a cluster; takes what `Hdfs` takes, except for the folder."""


_clusters: dict[str, Hdfs] = {}
"""By fixture: the clusters that end before the ring does."""


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """End a cluster after the last test that uses it: the daemons of all clusters at once take 3 GiB."""
    for name in _last_uses(item.session).get(item.nodeid, ()):
        if name in _clusters:
            _clusters.pop(name).close()


@cache
def _last_uses(session: pytest.Session) -> dict[str, list[str]]:
    """The fixtures of clusters by the last test that uses each of them."""
    last_tests = {name: item.nodeid for item in session.items for name in getattr(item, "fixturenames", ())}
    uses: dict[str, list[str]] = {}
    for name, test in last_tests.items():
        uses.setdefault(test, []).append(name)
    return uses


@pytest.fixture(scope="package")
def hdfs_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """One cluster for the whole ring; no test touches its daemons, and each has a folder of its own in it."""
    with hdfs(tmp_path_factory.mktemp("hdfs")) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def _breakable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with hdfs(tmp_path_factory.mktemp("breakable-hdfs")) as cluster:
        _clusters["_breakable"] = cluster
        yield cluster


@pytest.fixture
def breakable_hdfs(_breakable: Hdfs) -> Hdfs:
    """A cluster for a test that kills or pauses daemons, or enters safe mode; it is repaired before the next test."""
    _breakable.repair()
    return _breakable


@pytest.fixture(scope="package")
def _breakable_ha(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HaHdfs]:
    with ha_hdfs(tmp_path_factory.mktemp("ha-hdfs")) as cluster:
        _clusters["_breakable_ha"] = cluster
        yield cluster


@pytest.fixture
def ha_cluster(_breakable_ha: HaHdfs) -> HaHdfs:
    """Two NameNodes of one nameservice; as with `breakable_hdfs`, the test may do anything to them."""
    _breakable_ha.repair()
    return _breakable_ha


@pytest.fixture
def start_hdfs(tmp_path: Path) -> Iterator[StartHdfs]:
    """Starts clusters of the test's own, for settings that the others do not have."""
    numbers = count()
    with ExitStack() as clusters:

        def start(**options: Any) -> Hdfs:
            return clusters.enter_context(hdfs(tmp_path / f"hdfs{next(numbers)}", **options))

        yield start


@pytest.fixture(scope="package")
def kdc_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    """One realm for the whole ring."""
    with kdc(tmp_path_factory.mktemp("kdc")) as centre:
        yield centre


@pytest.fixture(scope="package")
def secure_cluster(kdc_of_tests: Kdc, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureHdfs]:
    """One cluster for the whole ring that needs tickets or delegation tokens; a token expires after `TOKEN_LIFE_S`
    unless it is renewed."""
    short = {"dfs.namenode.delegation.token.renew-interval": str(int(TOKEN_LIFE_S * 1000))}
    with secure_hdfs(tmp_path_factory.mktemp("secure-hdfs"), kdc_of_tests, settings=short) as cluster:
        _clusters["secure_cluster"] = cluster
        yield cluster


@pytest.fixture(scope="package")
def yarn_cluster(hdfs_cluster: Hdfs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    """One cluster for the whole ring; no test touches its daemons, and each ends what it submits. Containers run the
    Python of this environment."""
    folder = tmp_path_factory.mktemp("yarn") / "cluster"
    with yarn(folder, hdfs_cluster, Knobs(gpus=2)) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def _training_pack(yarn_cluster: Yarn) -> str:
    yarn_cluster.pack = url = pack(TRAINING, f"{yarn_cluster.hdfs.url}/{TRAINING_PACKS}", _ignore).url
    first = submit(yarn_cluster, FIRST)
    yarn_cluster.pack = None
    assert first.exit_code == 0, first.output
    return url


@pytest.fixture
def packed_yarn(yarn_cluster: Yarn, _training_pack: str) -> Iterator[Yarn]:
    """`yarn_cluster`, where containers run from a pack with TensorFlow and Horovod, which the nodes have unpacked."""
    yarn_cluster.pack = _training_pack
    yield yarn_cluster
    yarn_cluster.pack = None


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    """An empty folder, where training functions on YARN write their container and process."""
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder


@pytest.fixture(scope="package")
def _breakable_yarn(hdfs_cluster: Hdfs, packs: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    folder = tmp_path_factory.mktemp("breakable-yarn") / "cluster"
    store = open_store(packs)
    [name] = store.list()
    with yarn(folder, hdfs_cluster, Knobs(expiry_s=6.0, enforce_memory=True, preempt=True)) as cluster:
        cluster.pack = store.where(name)
        yield cluster


@pytest.fixture
def breakable_yarn(_breakable_yarn: Yarn) -> Yarn:
    """A cluster for a test that kills daemons and containers; it is repaired before the next test. What is submitted
    runs from a pack without TensorFlow, which a node that returns unpacks again."""
    _breakable_yarn.repair()
    return _breakable_yarn


@pytest.fixture(scope="package")
def packs(hdfs_cluster: Hdfs) -> str:
    """A folder of HDFS with the pack of all that sparktrain itself requires, without TensorFlow."""
    folder = f"{hdfs_cluster.url}/{SMALL_PACKS}"
    assert pack(SMALL, folder, _ignore).uploaded
    return folder


def _ignore(size: int, total: int) -> None:
    """Ignore the progress of a pack."""
