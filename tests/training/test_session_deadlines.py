"""How long a worker of TensorFlow 1 waits for the chief, and what it reports then."""

from types import SimpleNamespace
from typing import Any

import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.config.gang_spec import Role
from sparktrain.errors import FormError
from sparktrain.state.topology import Formation, MemberAddress
from sparktrain.training.frameworks.tensorflow.strategies.sessions import CHIEF_TIMEOUT_S, SessionMember, _Sessions

PLACES = tuple(
    MemberAddress("gpu-1", "127.0.0.1", 4000 + rank, role) for rank, role in enumerate((Role.CHIEF, Role.WORKER))
)
MANAGER = SimpleNamespace(_graph=SimpleNamespace(get_operations=list))


def waiting(fails: bool, **given: Any) -> list[float]:
    """What TensorFlow's own wait gets as its deadline, in a worker with no server to wait for."""
    import tensorflow as tf

    seen = []

    def wait_for_session(manager: Any, master: str, config: Any = None, max_wait_secs: float = float("inf")) -> None:
        seen.append(max_wait_secs)
        if fails:
            raise tf.errors.DeadlineExceededError(None, None, "Session was not ready")

    member = SessionMember(Formation(1, PLACES), None, lambda *_: None, lambda: None, "", (), SystemClock())  # type: ignore[arg-type]
    _Sessions(member).awaited(wait_for_session)(MANAGER, "grpc://127.0.0.1:1", **given)
    return seen


@pytest.mark.parametrize("given", [{}, {"max_wait_secs": 7200}, {"max_wait_secs": 1800}])
def test_the_deadline_replaces_those_of_tensorflow(given: dict[str, float]) -> None:
    assert waiting(False, **given) == [CHIEF_TIMEOUT_S]


def test_the_deadline_of_the_program_counts() -> None:
    assert waiting(False, max_wait_secs=20) == [20]


def test_the_error_names_the_chief() -> None:
    with pytest.raises(FormError, match=r"rank 0 \(chief\) at gpu-1:4000 did not initialise the variables within 20 s"):
        waiting(True, max_wait_secs=20)
