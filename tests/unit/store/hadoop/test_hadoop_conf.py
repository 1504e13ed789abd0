"""Resolves an hdfs:// URL with a configuration to the address that executors open."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import SpecError
from sparktrain.store.hadoop.hadoop_conf import USER, become, resolve, reversed_namenodes, user
from sparktrain.store.url import open_store

LAB = {
    "dfs.nameservices": "lab, other",
    "dfs.ha.namenodes.lab": "nn1,nn2",
    "dfs.namenode.rpc-address.lab.nn1": "one:8020",
    "dfs.namenode.rpc-address.lab.nn2": "two:8020",
    "dfs.namenode.name.dir": "file:///not/for/clients",
}


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("HADOOP_USER_NAME", "ann")
    return tmp_path


@pytest.fixture
def no_conf(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "HADOOP_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HADOOP_USER_NAME", "ann")


def write(folder: Path, core: Mapping[str, str], hdfs: Mapping[str, str]) -> None:
    for name, site in {"core-site.xml": core, "hdfs-site.xml": hdfs}.items():
        properties = (f"<property><name>{key}</name><value>{value}</value></property>" for key, value in site.items())
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"<configuration>{''.join(properties)}</configuration>")


def test_a_url_without_authority_names_the_default(conf: Path) -> None:
    write(conf, {"fs.defaultFS": "hdfs://${lab.name}/", "lab.name": "lab"}, LAB)
    address = resolve(StoreAddress("hdfs:///exp/", timeout_s=7.0))
    assert address.url == "hdfs://lab/exp"
    assert address.timeout_s == 7.0
    assert address.settings["dfs.namenode.rpc-address.lab.nn2"] == "two:8020"
    assert address.settings[USER] == "ann"
    assert "dfs.namenode.name.dir" not in address.settings


def test_an_address_opens_the_same_store_where_there_is_no_configuration(
    conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(conf, {"fs.defaultFS": "hdfs://lab"}, LAB)
    address = open_store("hdfs:///exp").address
    monkeypatch.delenv("HADOOP_CONF_DIR")
    assert open_store(address).address == address
    assert open_store(address).where("a/b") == "hdfs://lab/exp/a/b"


def test_a_driver_on_yarn_finds_the_configuration_that_spark_has_sent(
    no_conf: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "__spark_conf__" / "__hadoop_conf__", {"fs.defaultFS": "hdfs://lab"}, LAB)
    monkeypatch.chdir(tmp_path)
    assert resolve(StoreAddress("hdfs:///exp")).url == "hdfs://lab/exp"


def test_the_configuration_of_a_hadoop_installation(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR")
    monkeypatch.setenv("HADOOP_HOME", str(conf))
    write(conf / "etc" / "hadoop", {"fs.defaultFS": "hdfs://nn:8020"}, {})
    assert resolve(StoreAddress("hdfs:///")).url == "hdfs://nn:8020/"


def test_with_kerberos_the_ticket_names_the_user(conf: Path) -> None:
    write(conf, {"fs.defaultFS": "hdfs://lab", "hadoop.security.authentication": "kerberos"}, LAB)
    assert USER not in resolve(StoreAddress("hdfs:///exp")).settings


@pytest.mark.usefixtures("no_conf")
def test_a_host_and_port_need_no_configuration() -> None:
    address = resolve(StoreAddress("hdfs://[::1]:8020/exp"))
    assert (address.url, address.settings) == ("hdfs://[::1]:8020/exp", {USER: "ann"})


@pytest.mark.usefixtures("no_conf")
def test_without_configuration_the_default_is_unknown() -> None:
    with pytest.raises(SpecError, match=r"names no NameNode, and \$HADOOP_CONF_DIR.* is not set"):
        open_store("hdfs:///exp")
    with pytest.raises(SpecError, match=r"names lab, which is no nameservice of any .* \(there are none\)"):
        open_store("hdfs://lab/exp")


@pytest.mark.parametrize("default", ["s3a://bucket", "viewfs://all", ""])
def test_a_default_file_system_that_is_not_hdfs(conf: Path, default: str) -> None:
    write(conf, {"fs.defaultFS": default}, LAB)
    with pytest.raises(SpecError, match="neither does fs"):
        open_store("hdfs:///exp")


@pytest.mark.parametrize("authority", ["labb", "host.example.com"])
def test_an_unknown_nameservice_names_those_that_are_known(conf: Path, authority: str) -> None:
    write(conf, {}, LAB)
    with pytest.raises(SpecError, match=r"names .* \(there are: lab, other\); write one of those, or hdfs://host:port"):
        open_store(f"hdfs://{authority}/exp")


def test_a_configuration_that_cannot_be_read(conf: Path) -> None:
    (conf / "core-site.xml").write_text("<configuration><property>")
    with pytest.raises(SpecError, match="cannot be read"):
        open_store("hdfs:///exp")


@pytest.mark.parametrize(
    "dir", ["hdfs:/exp", "hdfs://host:1/a/../b", "hdfs://host:x/a", "webhdfs:///a", "webhdfs://h/a"]
)
def test_urls_that_are_refused(conf: Path, dir: str) -> None:
    with pytest.raises(SpecError):
        open_store(dir)


def test_paths_are_literal_as_in_hadoop(conf: Path) -> None:
    assert open_store("hdfs://host:1//my%20runs//a b?#/").where("x") == "hdfs://host:1/my%20runs/a b?#/x"


def test_gateways(conf: Path) -> None:
    store = open_store("webhdfs://one:9870,two:9870/exp")
    assert store.where("a") == "webhdfs://one:9870,two:9870/exp/a"
    assert store.address.settings == {USER: "ann"}


def test_the_other_namenode_comes_first() -> None:
    assert reversed_namenodes(LAB) == LAB | {"dfs.ha.namenodes.lab": "nn2,nn1"}


def test_executors_write_as_the_user_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    environment: dict[str, str] = {}
    monkeypatch.setattr("os.environ", environment)
    become({})
    assert environment == {}
    become({USER: "ann"})
    become({USER: "bob"})
    assert environment == {"HADOOP_USER_NAME": "ann"}
    assert user({USER: "bob"}) == "ann"
