"""What is in a pack of this process' own Python."""

import pytest

from sparktrain.submit.env_pack import pack
from sparktrain.submit.env_pack.contents import Contents


@pytest.fixture(scope="module")
def planned() -> Contents:
    return pack.plan(["msgspec"])


def test_it_has_an_interpreter_its_library_and_its_packages(planned: Contents) -> None:
    names = {entry.name: entry for entry in planned.entries}
    [site] = {name.partition("/sparktrain/")[0] for name in names if name.endswith("/sparktrain/executor/agent.py")}
    assert names["bin/python"].link
    assert any(name.endswith("/os.py") for name in names)
    assert f"{site}/msgspec/__init__.py" in names
    assert any(name.startswith(f"{site}/sparktrain-") and name.endswith("/METADATA") for name in names)
    assert not [name for name in names if "__pycache__" in name or "/pyspark/" in name]


def test_programs_alone_can_be_executed(planned: Contents) -> None:
    programs = sorted(entry.name for entry in planned.entries if entry.executable)
    assert [name.partition("/")[0] for name in programs] == ["bin", "libexec"]


def test_the_same_python_has_the_same_name(planned: Contents) -> None:
    assert pack.plan(["msgspec"]).archive == planned.archive


def test_what_was_done_is_told_on_one_line(planned: Contents) -> None:
    packed = pack.Packed("hdfs://nn/one.tar.gz", planned, uploaded=True)
    assert packed.line.startswith(f"packed {len(planned.packages)} packages, ")
    assert packed.line.endswith(" unpacked, to hdfs://nn/one.tar.gz")
    ringless = pack.Packed("/one", Contents((), ("tensorflow 2.21.0",)), uploaded=False)
    assert ringless.line == "nothing to upload, 1 package, 0 bytes unpacked: /one; without Horovod, see make horovod"


def test_packs_are_kept_below_the_home_of_who_submits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "ann")
    assert pack.usual_folder() == "hdfs:///user/ann/.sparktrain/packs"
