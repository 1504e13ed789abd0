"""Specifications of gangs."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.config.backends import Backend
from sparktrain.config.gang_spec import ALONE, GangSpec, Role
from sparktrain.config.server_settings import ServerMode, ServerSettings
from sparktrain.errors import SpecError

sizes = st.builds(
    GangSpec,
    workers=st.integers(1, 9),
    ps=st.integers(0, 3),
    evaluator=st.booleans(),
    backend=st.just(Backend.TENSORFLOW),
)


@given(sizes)
def test_every_member_has_a_role_and_the_first_is_the_chief(gang: GangSpec) -> None:
    roles = gang.roles()
    assert len(roles) == gang.size
    assert roles[0] is Role.CHIEF
    assert roles.count(Role.CHIEF) == 1
    assert roles.count(Role.WORKER) == gang.workers - 1
    assert (roles.count(Role.PS), roles.count(Role.EVALUATOR)) == (gang.ps, gang.evaluator)


def test_an_ordinary_trial_has_a_gang_of_one() -> None:
    assert (ALONE.size, ALONE.roles()) == (1, (Role.CHIEF,))


def test_values_become_plain() -> None:
    gang = GangSpec(workers=np.int64(3), backend="tensorflow", hang_timeout_s="2m")  # type: ignore[arg-type]
    assert (type(gang.workers), gang.backend, gang.hang_timeout_s) == (int, Backend.TENSORFLOW, 120.0)


@pytest.mark.parametrize(
    ("backend", "ps", "in_step"),
    [
        ("horovod", 0, True),
        ("tensorflow", 0, True),
        ("tensorflow", 1, False),
        ("parameter-server", 1, False),
        ("none", 0, False),
    ],
)
def test_members_of_rings_alone_make_each_step_together(backend: str, ps: int, in_step: bool) -> None:
    assert GangSpec(workers=2, ps=ps, backend=Backend(backend)).in_step is in_step


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"ps": 0}, r"backend 'parameter-server' with ps=0: .* pass ps=1"),
        ({"evaluator": True}, "only backend 'tensorflow' has evaluators"),
        ({"min_workers": 1}, "cannot shrink"),
        ({"ps_mode": "local-sgd"}, "'local-sgd' without local_steps: .* pass local_steps=8"),
        ({"local_steps": 8}, "local_steps=8 with ps_mode 'async': .* pass ps_mode='local-sgd'"),
        ({"ps_mode": "local-sgd", "local_steps": 8, "backup_workers": 1}, "only 'sync' waits"),
        ({"backend": "horovod", "ps": 0, "ps_mode": "local-sgd", "local_steps": 8}, "these are of backend 'parameter"),
        ({"backend": "tensorflow", "local_steps": 8}, r"TensorFlow's own cluster \(ps=1, evaluator=False\)"),
        ({"ps_mode": "synk"}, r"ps_mode \('synk'\) must be one of .* did you mean 'sync'"),
        ({"backup_workers": 1}, "only 'sync' waits"),
        ({"ps_mode": "sync", "backup_workers": 2}, r"backup_workers \(2\) must be less than workers \(2\)"),
        ({"backend": "tensorflow", "ps_mode": "sync"}, "these are of backend 'parameter-server'"),
        ({"backend": "horovod", "ps": 1}, "only backend 'tensorflow' has parameter servers and evaluators"),
    ],
)
def test_servers_that_no_gang_can_have_are_refused(wrong: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"workers": 2, "ps": 1, "backend": "parameter-server"} | wrong
    with pytest.raises(SpecError, match=words):
        GangSpec(**given)


def test_the_settings_of_servers_follow_from_the_gang() -> None:
    gang = GangSpec(workers=3, ps=2, backend=Backend.PARAMETER_SERVER, ps_mode=ServerMode.SYNC, backup_workers=1)
    assert gang.servers == ServerSettings(ServerMode.SYNC, 3, 1)
