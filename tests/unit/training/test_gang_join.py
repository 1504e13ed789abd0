"""In which order a member becomes one of its gang."""

import os
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sparktrain.base.ids import Generation, Member, Rank, RunId, TrialId
from sparktrain.config.backends import Backend
from sparktrain.config.gang_spec import Role
from sparktrain.errors import FormError, SpecError
from sparktrain.protocol.pipe_messages import Assignment, LocalCode
from sparktrain.state.topology import ALONE, MemberAddress
from sparktrain.training import gang_join
from sparktrain.training.collectives import backend
from sparktrain.training.collectives.eager_call_log import EagerCallLog
from sparktrain.training.collectives.ring import LocalRing
from sparktrain.training.frameworks.keras.keras_distribution import training_ring
from tests.support.member_calls import member_call

HERE = "127.0.0.1"


class Agent:
    """The wire to an agent that knows the places of a gang of two on one host."""

    def reserve(self, port: int) -> tuple[MemberAddress, ...]:
        return tuple(MemberAddress("host", HERE, port, role) for role in (Role.CHIEF, Role.WORKER))


class Silence(backend.Exchange):
    """No member shares anything."""

    def share(self, key: str, value: bytes) -> None:
        """See base class."""

    def shared(self, timeout_s: float) -> None:
        """See base class."""

    def moved(self, rank: int) -> None:
        """See base class."""


def assignment(rank: int, kind: Backend, gpus: tuple[str, ...] = (), port: int = 0) -> Assignment:
    return Assignment(
        member=Member(RunId("run"), TrialId(0), Generation(1), Rank(rank)),
        call=member_call(size=2, backend=kind, port=port),
        code=LocalCode("", False, ()),
        work_dir="",
        log_dir="",
        log_path="",
        gpus=gpus,
        address=HERE,
    )


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """What a backend finds in CUDA_VISIBLE_DEVICES when it joins, which initialises TensorFlow, on a host of 4 GPUs."""
    found: list[str | None] = []

    def load(kind: Backend) -> Callable[[backend.Joining], LocalRing]:
        def join(joining: backend.Joining) -> LocalRing:
            found.append(os.environ.get("CUDA_VISIBLE_DEVICES"))
            joining.release_port()
            return LocalRing()

        return join

    monkeypatch.setattr(backend, "load", load)
    monkeypatch.setattr(os, "listdir", lambda path: ["null", "nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("TF_CONFIG", "")
    return found


def train(ctx: Any) -> None:
    """Uses the ring alone."""


@pytest.mark.parametrize("kind", [Backend.TENSORFLOW, Backend.HOROVOD])
def test_each_member_of_a_host_has_its_gpu_before_the_ring_initialises_tensorflow(
    kind: Backend, seen: list[str | None]
) -> None:
    for rank in range(2):
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        gang_join.form(assignment(rank, kind), Agent(), train)  # type: ignore[arg-type]
    assert seen == ["0", "1"]


def test_callbacks_of_keras_are_refused_on_a_ring_of_another_framework() -> None:
    class TorchRing(LocalRing):
        framework = "torch"
        size = 2

    gang = gang_join.JoinedGang(ALONE, TorchRing, lambda: None)
    _ = gang.ring
    with pytest.raises(SpecError, match=r"ctx\.keras_callbacks\(\).* is connected by torch: let .* pass .*'horovod'"):
        training_ring(gang, "ctx.keras_callbacks()")


def test_gpus_that_somebody_else_has_shared_out_stay(seen: list[str | None]) -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = "GPU-7"
    gang_join.form(assignment(1, Backend.TENSORFLOW, ("GPU-7",)), Agent(), train)  # type: ignore[arg-type]
    assert seen == ["GPU-7"]


def test_a_member_that_restarts_alone_waits_for_the_process_before(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind((HERE, 0))
        port, pauses = other.getsockname()[1], list[float]()
        monkeypatch.setattr(gang_join, "pause", lambda seconds: (pauses.append(seconds), other.close()))
        again = assignment(1, Backend.NONE, port=port)
        gang = gang_join.form(again, Agent(), train)  # type: ignore[arg-type]
        assert gang.formation.mine.port == port
        gang.release_port()
        assert len(pauses) == 1


def test_a_member_that_restarts_alone_names_the_port_that_another_process_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_join, "PORT_TIMEOUT_S", 0.0)
    with socket.socket() as other:
        other.bind((HERE, 0))
        port = other.getsockname()[1]
        again = assignment(1, Backend.NONE, port=port)
        with pytest.raises(
            FormError, match=rf"port {port} of {HERE}, by which the other members know this one, .* taken"
        ):
            gang_join.form(again, Agent(), train)  # type: ignore[arg-type]


def test_a_process_that_joins_members_that_train_compares_its_calls_once_it_has_their_state() -> None:
    ring = LocalRing()
    ring.heals = True
    ring.calls = EagerCallLog()
    healing: Any = SimpleNamespace(waits=False, awaits_state=True, ring=SimpleNamespace(formation=ALONE), watch=None)
    gang = gang_join.JoinedGang(ALONE, lambda: ring, lambda: None, Silence(), heal=lambda gang, ring: healing)
    _ = gang.ring
    gang.on_mismatch(lambda mismatch: None)
    assert healing.watch is None, "the others count their collectives from its arrival on"
    healing.awaits_state = False
    gang.watch_calls()
    assert healing.watch is not None
