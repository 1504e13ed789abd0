"""What a formation is to TensorFlow, and how a port is kept for its server."""

import json
import os
import socket
from collections.abc import Iterator

import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.config.backends import Backend
from sparktrain.config.gang_spec import GangSpec, Role
from sparktrain.errors import FormError
from sparktrain.state.topology import ALONE, Formation, MemberAddress
from sparktrain.training.collectives.ring_errors import is_loss
from sparktrain.training.frameworks.tensorflow.strategies import tf_cluster


def formation(rank: int = 0, ports: tuple[int, ...] = (), **counts: int) -> Formation:
    roles = GangSpec(backend=Backend.TENSORFLOW, **counts).roles()
    chosen = ports or tuple(range(1, len(roles) + 1))
    return Formation(
        rank, tuple(MemberAddress("h", "127.0.0.1", port, role) for port, role in zip(chosen, roles, strict=True))
    )


@pytest.fixture
def held() -> Iterator[socket.socket]:
    """A port that is held as a member holds it."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("", 0))
        yield held


def test_tf_config_names_the_cluster_without_its_evaluator() -> None:
    config = json.loads(formation(2, workers=2, ps=1, evaluator=True).tf_config())
    assert config["cluster"] == {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"], "ps": ["127.0.0.1:3"]}
    assert config["task"] == {"type": "ps", "index": 0}


def test_tf_config_of_the_evaluator_has_the_cluster_that_it_watches() -> None:
    config = json.loads(formation(1, workers=1, evaluator=True).tf_config())
    assert config["cluster"] == {"chief": ["127.0.0.1:1"]}
    assert config["task"] == {"type": "evaluator", "index": 0}


def test_tf_config_of_one_who_is_alone_has_no_cluster() -> None:
    assert json.loads(ALONE.tf_config()) == {}


def test_workers_are_servers_only_beside_parameter_servers() -> None:
    served, mirrored = formation(workers=2, ps=1, evaluator=True), formation(workers=2)
    assert [Formation(rank, served.places).is_server for rank in range(4)] == [False, True, True, False]
    assert [Formation(rank, mirrored.places).is_server for rank in range(2)] == [False, False]


def test_a_port_is_kept_until_the_server_has_it(held: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_GRPC_REUSE_PORT", raising=False)
    place = MemberAddress("h", "127.0.0.1", held.getsockname()[1], Role.CHIEF)
    with tf_cluster.port_kept(place, held.close):
        assert os.environ["TF_GRPC_REUSE_PORT"] == "true"
        assert held.fileno() >= 0
    assert held.fileno() == -1
    assert "TF_GRPC_REUSE_PORT" not in os.environ


def test_a_server_that_cannot_start_is_a_gang_that_cannot_form(held: socket.socket) -> None:
    place = MemberAddress("h", "127.0.0.1", held.getsockname()[1], Role.CHIEF)
    with (
        pytest.raises(FormError, match=r"cannot be started at 127.0.0.1:\d+, another process has that port"),
        tf_cluster.port_kept(place, held.close),
    ):
        raise RuntimeError("Could not start gRPC server")
    assert held.fileno() == -1


def test_members_that_listen_have_come_and_the_others_are_named(held: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as come, socket.socket() as absent:
        absent.bind(("127.0.0.1", 0))
        ports = tuple(each.getsockname()[1] for each in (held, come, absent))
        tf_cluster.await_members(formation(0, ports[:2], workers=2), 5.0, "no reason", SystemClock())
        with pytest.raises(FormError, match=rf"^rank 2 \(worker\) at h:{ports[2]} did not come within 0.1 s; call it$"):
            tf_cluster.await_members(formation(0, ports, workers=3), 0.1, "call it", SystemClock())


def test_an_error_that_is_not_of_tensorflow_is_not_of_its_cluster() -> None:
    assert not is_loss(ValueError("UnavailableError"))
