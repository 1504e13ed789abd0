"""The slots of this machine share its GPUs with gpu_memory, and only as many as fit."""

from pathlib import Path

import pytest

from sparktrain.cluster.spark_facts import Facts
from sparktrain.config.gang_spec import ALONE
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.driver.engines.local_batch import AgentPlace
from sparktrain.driver.engines.local_engine import LocalEngine, local
from sparktrain.errors import ResourceError
from sparktrain.training.own_devices import VARIABLE
from tests.support.nvidia_smi import list_gpus

MIB = 19 * 1024
SPEC = SweepSpec(name="r", gang=ALONE, gpu_memory=MIB * 2**20)


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has two GPUs of 80 GB."""
    monkeypatch.setenv("PATH", f"{list_gpus(tmp_path, [81559, 81559])}:/usr/bin:/bin")
    monkeypatch.delenv(VARIABLE, raising=False)


def places(engine: LocalEngine) -> list[tuple[str, ...]]:
    return [engine._place(1, held).gpus or () for held in engine._gpus]


def test_slots_share_the_gpus_that_nvidia_smi_lists(gpus: None) -> None:
    engine = LocalEngine(local(slots=5), 8)
    assert [*map(len, engine._gpus)] == [1, 1, 0, 0, 0]
    sharing = engine.sharing(MIB)
    sharing.check_run(SPEC)
    assert places(sharing) == [("0",), ("1",), ("0",), ("1",), ("0",)]
    assert sharing._place(1, ("1",)) == AgentPlace(1, ("1",), (81559,)), "agents report it when they join"
    assert (sharing.gpu_mib, sharing.holder, sharing.slots) == (MIB, engine.holder, 5)
    assert engine.sharing(0) is engine


def test_slots_share_the_gpus_that_the_environment_names(gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "GPU-1")
    assert places(LocalEngine(local(slots=2), 8).sharing(MIB)) == [("GPU-1",)] * 2
    with pytest.raises(ResourceError, match=r"for each of 5 slots .* of 1 GPU .* use local\(slots=4\)"):
        LocalEngine(local(slots=5), 8).sharing(MIB)


@pytest.mark.parametrize(
    ("visible", "problem"),
    [("", "this machine has none that nvidia-smi or CUDA_VISIBLE_DEVICES"), ("7", "how much memory GPU 7 has, and")],
)
def test_without_a_gpu_that_is_known_it_is_refused(
    gpus: None, monkeypatch: pytest.MonkeyPatch, visible: str, problem: str
) -> None:
    monkeypatch.setenv(VARIABLE, visible)
    with pytest.raises(ResourceError, match=rf"^gpu_memory \(19\.0 GiB\) .*{problem}"):
        LocalEngine(local(slots=2), 8).sharing(MIB)


def test_a_machine_without_nvidia_smi_has_no_gpu_to_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(ResourceError, match="this machine has none that nvidia-smi"):
        LocalEngine(local(slots=2), 8).sharing(MIB)


def test_a_session_on_a_cluster_shares_by_what_agents_report() -> None:
    from sparktrain.driver.engines.spark_engine import SparkEngine

    conf = {"spark.task.resource.gpu.amount": "0.25", "spark.executor.resource.gpu.amount": "1"}
    session: object = object()
    engine = SparkEngine(session, Facts("spark://h:1", conf, cores=4))  # type: ignore[arg-type] # no call of the test uses it
    sharing = engine.sharing(MIB)
    sharing.check_run(SweepSpec(name="r", gpu_memory=MIB * 2**20, max_retries=0))
    assert (sharing.gpu_mib, engine.sharing(0)) == (MIB, engine)
