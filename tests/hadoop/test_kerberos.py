"""Runs and stores on an HDFS that needs a ticket or a token."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from secrets import token_hex

import psutil
import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.cluster.kerberos_ticket import ticket
from sparktrain.cluster.spark_session import jvm_here
from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import RunDirectoryError
from sparktrain.rundir.journal.reader import read
from sparktrain.rundir.layout import RunLayout
from sparktrain.state.records import CheckpointAcknowledged, GangFormed
from sparktrain.store.base import Store
from sparktrain.store.hadoop.hdfs import HdfsStore
from sparktrain.store.hadoop.token_file import TokenFile
from sparktrain.store.url import open_store
from sparktrain.testing.store_contract import SharedStoreContract
from tests.hadoop.canaries import found_in, kept_in, noted_in, shown_by
from tests.hadoop.conftest import TOKEN_LIFE_S
from tests.hadoop.endurance import EVERY, expected
from tests.support.hadoop import REALM, Kdc, SecureHaHdfs, SecureHdfs, secure_hdfs
from tests.support.hadoop.java import java_home, krb5_option
from tests.support.processes import Sighted, descendants, wait_until

FOUR_LIVES = pytest.mark.all(case="the tokens of a run expire four times", covered_by="they expire once")

DRIVER = Path(__file__).with_name("kerberos_driver.py")
ROOT = Path(__file__).parents[2]
LIVES = [1, pytest.param(4, marks=FOUR_LIVES)]
"""Of a token: how many of them a run outlives."""
BEGINS_S = 150.0
"""From the start of a driver until its member trains, on a busy machine."""
SAVES_S = 20.0
"""From one checkpoint to the next, there."""

pytestmark = pytest.mark.timeout(300 + 4 * TOKEN_LIFE_S)


@pytest.fixture(scope="module")
def home(secure_cluster: SecureHdfs) -> str:
    """A folder that belongs to alice."""
    return secure_cluster.home("alice")


@pytest.fixture
def bare(secure_cluster: SecureHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process knows where Kerberos is, and has neither ticket nor token."""
    for name, value in {**secure_cluster.env, "KRB5CCNAME": str(tmp_path / "none")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HADOOP_TOKEN_FILE_LOCATION", raising=False)


@pytest.fixture
def alice(bare: None, kdc_of_tests: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process has a ticket of alice's; its file."""
    tickets = kdc_of_tests.kinit("alice", tmp_path / "tickets")
    monkeypatch.setenv("KRB5CCNAME", str(tickets))
    return tickets


@pytest.mark.all(
    case="the whole store contract with a Kerberos ticket",
    covered_by="a ticket and each operation once; `hadoop/test_store`: the contract without Kerberos",
)
class TestWithATicket(SharedStoreContract):
    @pytest.fixture
    def store(self, alice: Path, home: str, tmp_path: Path) -> Store:
        return HdfsStore.at(StoreAddress(f"{home}{tmp_path}", timeout_s=30.0))


def check_operations(store: Store) -> None:
    """All that a run does with a store, once."""
    store.probe()
    assert store.put_if_absent("a", b"1")
    assert not store.put_if_absent("a", b"2")
    log = store.open_stream("log")
    log.write(b"line\n")
    log.close()
    new = store.create("model")
    new.write(bytes(5 * 2**20))
    new.publish()
    assert store.list() == ["a", "log", "model"]
    assert (store.read("a"), store.read("log"), store.stat("model").size) == (b"1", b"line\n", 5 * 2**20)
    store.delete("a")
    assert not store.exists("a")


def test_a_ticket_will_do(alice: Path, home: str, tmp_path: Path) -> None:
    check_operations(open_store(f"{home}{tmp_path}"))


@pytest.mark.all(
    case="a token alone, and another one after its end",
    covered_by="a ticket; agents of a run have tokens alone, which expire; `unit/store/hadoop/test_hadoop_errors`",
)
def test_a_token_alone_will_do_and_another_one_after_its_end(
    bare: None, secure_cluster: SecureHdfs, home: str, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    mine = TokenFile(tmp_path / "mine")
    try:
        mine.keep(secure_cluster.tokens("alice", tmp_path / "first").read_bytes())
        started_at = SystemClock().now()
        check_operations(open_store(f"{home}/first"))
        ended = lambda: SystemClock().now() - started_at > TOKEN_LIFE_S + 1.0  # noqa: E731
        wait_until(ended, 2 * TOKEN_LIFE_S, "the token has ended")
        late = open_store(f"{home}/late")
        with pytest.raises(RunDirectoryError, match=r"Token .*has expired, .*; submit again"):
            late.probe()
        mine.keep(secure_cluster.tokens("alice", tmp_path / "second").read_bytes())
        check_operations(late)
    finally:
        mine.close()


@pytest.mark.all(
    case="a token for both NameNodes of a nameservice",
    covered_by="a token for one NameNode; `unit/cluster/test_delegation_tokens` for those of a nameservice",
)
def test_a_token_of_a_nameservice_will_do_for_each_of_its_namenodes(
    bare: None, kdc_of_tests: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    mine = TokenFile(tmp_path / "mine")
    with SecureHaHdfs(tmp_path / "hdfs", kdc_of_tests) as cluster:
        monkeypatch.setenv("HADOOP_CONF_DIR", str(cluster.conf))
        home = cluster.home("alice")
        try:
            mine.keep(cluster.tokens("alice", tmp_path / "given").read_bytes())
            check_operations(open_store(f"{home}/before"))
            cluster.failover()
            check_operations(open_store(f"{home}/after"))
        finally:
            mine.close()


def test_without_ticket_and_token_the_error_names_what_to_run(bare: None, home: str) -> None:
    with pytest.raises(RunDirectoryError, match="no valid Kerberos ticket") as caught:
        open_store(f"{home}/none").probe()
    assert f"hdfs/localhost@{REALM}" in str(caught.value)
    assert "run kinit" in str(caught.value)


def test_by_http_nobody_is_let_in(alice: Path, secure_cluster: SecureHdfs) -> None:
    gateway = secure_cluster.webhdfs_url.replace("http://", "webhdfs://")
    with pytest.raises(RunDirectoryError, match="cannot be written by user"):
        open_store(f"{gateway}/user/alice/web").probe()


def test_a_ticket_has_its_principal_and_the_rest_of_its_life(
    alice: Path, kdc_of_tests: Kdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = ticket()
    assert held is not None
    assert held.principal == f"alice@{REALM}"
    assert 80_000 < held.left_s <= 86_400
    kdc_of_tests.kinit("alice", alice, lifetime_s=100)
    held = ticket()
    assert held is not None
    assert 0 < held.left_s <= 100
    monkeypatch.setenv("KRB5CCNAME", f"{alice}-gone")
    assert ticket() is None


class Driver:
    """A driver in a process of its own, which trains until the test ends it."""

    def __init__(self, folder: Path, directory: str, env: dict[str, str], conf: dict[str, str]) -> None:
        self.folder = folder
        self.log = folder / "driver.log"
        self.directory = directory
        (folder / "wanted.json").write_text(json.dumps(conf))
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(DRIVER), str(folder), directory],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **env},
                start_new_session=True,
            )

    def step(self) -> int:
        path = self.folder / "step"
        return int(path.read_text() or 0) if path.exists() else 0

    def wait_step(self, step: int, timeout_s: float) -> None:
        wait_until(lambda: self.step() >= step or self.process.poll() is not None, timeout_s, f"step {step}")
        assert self.process.poll() is None, self.output()

    def output(self) -> str:
        return self.log.read_text(errors="replace")[-6000:]

    def processes(self) -> list[psutil.Process]:
        me = psutil.Process(self.process.pid)
        return [me, *me.children(recursive=True)]

    def environments(self, words: str) -> list[dict[str, str]]:
        """Its processes with `words` in their command line."""
        return [each.environ() for each in descendants(self.process.pid, words)]

    def kept(self) -> int:
        """The step of the newest checkpoint that was acknowledged; 0 before the first."""
        records = read(open_store(self.directory), RunLayout("e").journal).records
        assert sum(isinstance(each, GangFormed) for each in records) == 1, "no member was lost"
        return max((each.checkpoint.step for each in records if isinstance(each, CheckpointAcknowledged)), default=0)

    def finish(self, timeout_s: float = 60.0) -> dict[str, float]:
        (self.folder / "enough").touch()
        assert self.process.wait(timeout_s) == 0, self.output()
        return dict(json.loads((self.folder / "result.json").read_text()))

    def close(self) -> None:
        if self.process.poll() is None:
            sighted = Sighted(each.pid for each in self.processes())
            self.process.kill()
            self.process.wait()
            sighted.kill()


StartDriver = Callable[..., Driver]
"""Takes the URL of a folder, variables of the driver's environment, and settings of Spark."""


@pytest.fixture
def start_driver(secure_cluster: SecureHdfs, tmp_path: Path) -> Iterator[StartDriver]:
    """Starts a driver with executors that find no ticket, and with temporary files below `tmp_path`."""
    (tmp_path / "run").mkdir()
    with ExitStack() as started:

        def start(directory: str, env: dict[str, str], conf: dict[str, str]) -> Driver:
            java = " ".join([jvm_here(), *krb5_option(secure_cluster.conf)])
            options = {f"spark.{who}.extraJavaOptions": java for who in ("driver", "executor")}
            hidden = {"spark.executorEnv.KRB5CCNAME": str(tmp_path / "none"), "spark.authenticate": "true"}
            variables = {"TMPDIR": str(tmp_path / "run"), **env}
            made = Driver(tmp_path / "run", directory, variables, {**options, **hidden, **conf})
            started.callback(made.close)
            return made

        yield start


@pytest.mark.parametrize("lives", LIVES)
def test_a_run_whose_agents_have_tokens_alone_outlives_them(
    start_driver: StartDriver, alice: Path, home: str, tmp_path: Path, lives: int
) -> None:
    """`SPARKTRAIN_TOKEN_LIFE_S=60 make test-all` runs it for more than four minutes."""
    of_spark = token_hex(16)
    (tmp_path / "events").mkdir()
    conf = {
        "spark.authenticate.secret": of_spark,
        "spark.network.crypto.enabled": "true",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (tmp_path / "events").as_uri(),
    }
    driver = start_driver(f"{home}{tmp_path}", {}, conf)
    driver.wait_step(2 * EVERY, BEGINS_S)
    agents = driver.environments("pyspark.daemon")
    assert {each["KRB5CCNAME"] for each in agents} == {str(tmp_path / "none")}
    clock = SystemClock()
    started_at, saved = clock.now(), driver.step()
    while clock.now() < started_at + lives * TOKEN_LIFE_S:
        wait_until(lambda: driver.kept() > saved, SAVES_S, "a checkpoint counts")  # noqa: B023
        saved = driver.kept()
        assert not shown_by(driver.processes(), noted_in(driver.folder))
    secrets = {**noted_in(driver.folder), "secret of Spark": of_spark.encode()}
    result = driver.finish()

    assert result["sum"] == expected(int(result["steps"]))
    assert sum("token" in name for name in secrets) > lives
    assert "delegation tokens" not in driver.output(), "nothing is logged without a problem"
    assert not kept_in(tmp_path, secrets, but_not=r"/(secrets|wanted|conf)\.json$")
    store = open_store(driver.directory)
    assert not [path for path in store.list("e") if found_in(store.read(path), secrets)]


@pytest.mark.all(
    case="a driver with a token alone shares it, as in YARN's cluster mode",
    covered_by="`unit/cluster/test_delegation_tokens`: the tokens of the application are taken; "
    "`unit/driver/test_token_relay`: all agents get them",
)
def test_a_driver_that_has_a_token_alone_shares_it(
    start_driver: StartDriver,
    bare: None,
    kdc_of_tests: Kdc,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in YARN's cluster mode. By TLS between driver and executors; and the URL names the NameNode by another name
    than its token does."""
    with secure_hdfs(tmp_path / "hdfs", kdc_of_tests) as cluster:
        home = cluster.home("alice").replace("127.0.0.1", "localhost")
        given = cluster.tokens("alice", tmp_path / "given")
        env = {**cluster.env, "HADOOP_TOKEN_FILE_LOCATION": str(given)}
        driver = start_driver(f"{home}/runs", env, tls(tmp_path / "store.p12"))
        driver.wait_step(2 * EVERY, BEGINS_S)
        inherited = [name for each in driver.environments("sparktrain.training") for name in each]
        result = driver.finish()
        for name, value in {**cluster.env, "KRB5CCNAME": str(kdc_of_tests.kinit("alice", tmp_path / "late"))}.items():
            monkeypatch.setenv(name, value)
        assert driver.kept()

    assert result["sum"] == expected(int(result["steps"]))
    assert not {"HADOOP_TOKEN_FILE_LOCATION", "_SPARK_AUTH_SECRET"} & set(inherited)
    assert not [name for name in inherited if name.startswith("_SPARK_SSL_RPC")]


def tls(path: Path) -> dict[str, str]:
    """Settings by which Spark's connections use TLS, with a certificate of their own in the file `path`."""
    password = token_hex(8)
    tool = [f"{java_home()}/bin/keytool", "-genkeypair", "-keyalg", "RSA", "-dname", "CN=localhost", "-alias", "it"]
    subprocess.run(
        [*tool, "-keystore", str(path), "-storetype", "PKCS12", "-storepass", password], check=True, timeout=60
    )
    stores = {"keyStore": str(path), "keyStorePassword": password, "keyPassword": password}
    stores |= {"trustStore": str(path), "trustStorePassword": password}
    settings = {f"spark.ssl.rpc.{name}": value for name, value in stores.items()}
    return {**settings, "spark.ssl.rpc.enabled": "true", "spark.authenticate.secret": token_hex(16)}
