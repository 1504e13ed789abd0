"""How a pack is reported, and where it is kept."""

import pytest

from sparktrain.driver.submitted_jobs.env_pack import pack
from sparktrain.driver.submitted_jobs.env_pack.contents import Contents


def test_the_result_is_one_line() -> None:
    planned = Contents((), ("msgspec 0.20.0", "sparktrain 0.1.0"))
    packed = pack.Packed("hdfs://nn/one.tar.gz", planned, uploaded=True)
    assert packed.line.startswith(f"packed {len(planned.packages)} packages, ")
    assert packed.line.endswith(" unpacked, to hdfs://nn/one.tar.gz")
    ringless = pack.Packed("/one", Contents((), ("tensorflow 2.21.0",)), uploaded=False)
    assert ringless.line == "nothing to upload, 1 package, 0 bytes unpacked: /one; without Horovod, see make horovod"


def test_packs_are_kept_below_the_home_of_who_submits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "ann")
    assert pack.usual_folder() == "hdfs:///user/ann/.sparktrain/packs"
