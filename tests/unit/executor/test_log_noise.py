"""Logs of trials have no lines of TensorFlow's libraries about the machine, and all others as they were."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.executor.log_noise import NoiseFilter, is_chosen, without_noise
from sparktrain.executor.log_tail import LogFollower, drop_noise, tail_lines
from tests.unit.clocks import HandClock

MACHINE = b"""\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795651375.425887   22851 port.cc:153] oneDNN custom operations are on. You may see other results
I0000 00:00:1795651375.426239   22851 cudart_stub.cc:31] Could not find cuda drivers on your machine.
I0000 00:00:1795651375.574479   22851 cpu_feature_guard.cc:227] This TensorFlow binary is optimized to use instructions.
To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow.
E0000 00:00:1795651386.964239   22851 cuda_platform.cc:52] failed call to cuInit: INTERNAL: UNKNOWN ERROR (303)
2026-11-26 00:01:04.123456: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on.
2026-11-26 00:01:04.123456: E external/local_xla/xla/cuda_fft.cc:467] Unable to register cuFFT factory: x
2026-11-26 00:01:04.123456: I external/local_xla/xla/stream_executor/cuda/cuda_diagnostics.cc:168] hostname: gpu-3
"""
USERS = b"""\
epoch 1
WARNING:tensorflow:5 out of the last 5 calls triggered tf.function retracing
W1126 00:01:02.123456 1234 train.py:12] a warning of the user by absl
I0000 00:00:1795651375.574479   22851 gpu_device.cc:2020] Created device /job:localhost/replica:0/task:0/device:GPU:0
W0000 00:00:1795651375.574479   22851 gpu_device.cc:2342] Cannot dlopen some GPU libraries.
E0000 00:00:1795651386.964239   22851 cuda_platform.cc:52] failed call to cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
2026-11-26 00:01:04.1: W tensorflow/core/framework/local_rendezvous.cc:404] Local rendezvous is aborting
/tmp/sweep.py:17: UserWarning: mine
  oneDNN custom operations are on
E\rI\r7 of 9\
"""


def test_lines_about_the_machine_go_and_others_stay() -> None:
    assert without_noise(MACHINE) == b""
    assert without_noise(USERS) == USERS
    assert without_noise(MACHINE + USERS + b"\n" + MACHINE.removesuffix(b"\n")) == USERS + b"\n"


@given(st.lists(st.integers(1, len(MACHINE + USERS)), max_size=12))
def test_a_log_in_pieces_is_that_of_the_whole(cuts: list[int]) -> None:
    log, pieces, noise = MACHINE + USERS + b"\n" + MACHINE, [], NoiseFilter()
    places = [0, *sorted(cuts), len(log)]
    for start, end in pairwise(places):
        pieces.append(noise(log[start:end]))
    assert b"".join([*pieces, noise.remainder()]) == USERS + b"\n"


def test_a_progress_bar_is_not_held_back() -> None:
    noise = NoiseFilter()
    assert noise(b"\rstep 7") == b"\rstep 7"
    assert noise(b"I am a long line of the user " * 40) != b""


@pytest.mark.parametrize(
    ("variables", "chosen"), [({}, False), ({"LANG": "C"}, False), ({"TF_CPP_MIN_LOG_LEVEL": "0"}, True)]
)
def test_who_sets_the_level_of_tensorflow_gets_every_line(
    variables: dict[str, str], chosen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    assert is_chosen(variables) is chosen
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "1")
    assert is_chosen(variables)


def test_a_short_log_is_stored_without_them(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(MACHINE + USERS)
    assert tail_lines(log)[0] == "epoch 1"
    drop_noise(log)
    assert log.read_bytes() == USERS


@pytest.mark.parametrize(("whole", "left"), [(False, USERS), (True, MACHINE + USERS)])
async def test_a_long_log_is_followed_without_them(tmp_path: Path, whole: bool, left: bytes) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(MACHINE + USERS)
    follower = LogFollower(log, 10**6, HandClock(), is_whole=whole)
    follower.finish()
    assert b"".join([piece async for piece in follower]) == left
