"""Gangs of Keras on JAX: they train what one process trains, and resume after a loss."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import sparktrain as st
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.run_machine import RunMachine
from sparktrain.usercode.preload import pool_modules
from tests.process import keras_jax_programs

EQUAL = 1e-5
PART_NAMES = {
    *("slices-0000.json", "part-0000-00000.safetensors", "state.json", "tensors-00000.safetensors"),
    *("slices-0001.json", "part-0001-00000.safetensors"),
}
"""The files of both members."""
NEVER = 10**6


AGENTS = 2, *pool_modules("jax")
"""Two agents on this machine, with Keras on JAX."""


def run(
    pool: st.Pool, folder: Path, function: Any, workers: int, /, *, backend: str = "auto", **params: Any
) -> st.RunResult:
    return pool.run(
        function, params, workers=workers, backend=backend,
        env={"KERAS_BACKEND": "jax"}, dir=str(folder / "runs"), progress=False, healing=False,
    )  # fmt: skip


def run_split(pool: st.Pool, folder: Path, workers: int, every: str) -> st.RunResult:
    """Train a split model. The program imports modules of sparktrain, which name all backends."""
    return run(pool, folder, keras_jax_programs.resume_split, workers, backend="jax", folder=str(folder), every=every)


def weights(folder: Path, size: int, rank: int) -> list[Any]:
    return list(np.load(folder / f"{size}-rank-{rank}.npz").values())


@pytest.fixture(scope="module")
def alone(pool: st.Pool, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, float], list[Any]]:
    """The metrics and the weights of one process that trains on all rows."""
    folder = tmp_path_factory.mktemp("alone")
    metrics = run(pool, folder, keras_jax_programs.train, 1, folder=str(folder), kill_at=NEVER).metrics
    return metrics, weights(folder, 1, 0)


Alone = tuple[dict[str, float], list[Any]]
DATA_PARALLEL = pytest.mark.all(
    case="a program of Keras on JAX with `DataParallel`", covered_by="one with `ModelParallel`, which is killed"
)
OTHER_MESH = pytest.mark.all(case="a mesh of one device in a gang of two", covered_by="a mesh of four devices")
OTHER_RANK = pytest.mark.all(
    case="a killed member of a model that is split over the members", covered_by="the chief of one is killed"
)
CORRUPT = pytest.mark.all(
    case="a corrupt part of a checkpoint of all members", covered_by="`contract/test_checkpoints`: a corrupt checkpoint"
)


def test_a_gang_trains_what_one_process_trains_and_resumes(pool: st.Pool, alone: Alone, tmp_path: Path) -> None:
    expected, expected_weights = alone
    killed = run(pool, tmp_path, keras_jax_programs.train, 2, folder=str(tmp_path), kill_at=6)

    assert [restart.rank for restart in killed.restarts] == [1]
    assert killed.metrics["generation"] == 2
    for name in ("loss", "mae", "val_mae", "evaluated"):
        assert killed.metrics[name] == pytest.approx(expected[name], rel=0, abs=EQUAL), name
    for rank in range(2):
        for member_weight, weight in zip(weights(tmp_path, 2, rank), expected_weights, strict=True):
            np.testing.assert_allclose(member_weight, weight, rtol=0, atol=EQUAL)


@pytest.mark.all(
    case="other weights of Keras on JAX",
    covered_by="`faults/test_healing_fits`, `faults/test_loops`: those of Keras on TensorFlow",
)
def test_members_with_other_weights_end_with_an_error_that_names_the_variable(pool: st.Pool, tmp_path: Path) -> None:
    last = keras_jax_programs.EPOCHS * keras_jax_programs.ROWS // keras_jax_programs.BATCH
    params = {"folder": str(tmp_path), "kill_at": NEVER, "spoil_at": last}
    with pytest.raises(st.RunFailedError, match=r"rank 1 differs from the others in '\S*dense/bias': the members"):
        run(pool, tmp_path, keras_jax_programs.train, 2, **params)


@DATA_PARALLEL
@pytest.mark.parametrize(("kind", "part"), [("data", 1.0), ("model", 0.5)])
def test_a_program_for_keras_distribution_runs_as_it_is(
    pool: st.Pool, alone: Alone, tmp_path: Path, kind: str, part: float
) -> None:
    metrics = run(pool, tmp_path, keras_jax_programs.distributed, 2, kind=kind).metrics

    assert (metrics["devices"], metrics["part"]) == (2, part)
    for name in ("loss", "mae"):
        assert metrics[name] == pytest.approx(alone[0][name], rel=0, abs=EQUAL), name


class Interruption:
    """Kills a member of the first generation when the parts of a step are stored, or when its checkpoint counts."""

    def __init__(self, folder: Path, rank: int, step: int, *, corrupts: bool) -> None:
        self._folder = folder
        self._rank = rank
        self._step = step
        self._corrupts = corrupts

    def __enter__(self) -> "Interruption":
        self._patches = ExitStack()
        for name, replacement in (("_on_part", self._on_part), ("_on_checkpoint", self._on_checkpoint)):
            self._patches.enter_context(patch.object(RunMachine, name, _method(getattr(RunMachine, name), replacement)))
        return self

    def __exit__(self, *error: object) -> None:
        self._patches.close()

    def _kill(self) -> None:
        os.kill(int((self._folder / f"pid-1-{self._rank}").read_text()), signal.SIGKILL)

    def _on_part(self, commands: list[do.Command], message: Any) -> list[do.Command]:
        commits = [each for each in commands if isinstance(each, do.Send) and isinstance(each.message, m.CommitParts)]
        if self._corrupts or not commits or (message.member.generation, message.step) != (1, self._step):
            return commands
        self._kill()
        return []  # and no manifest is written any more

    def _on_checkpoint(self, commands: list[do.Command], message: Any) -> list[do.Command]:
        if self._corrupts and (message.member.generation, message.checkpoint.step) == (1, self._step):
            [part] = self._folder.glob(f"runs/*/trials/0000/checkpoints/gen-0001/data/{self._step:08d}-*.part-0001-*")
            part.write_bytes(part.read_bytes()[:-1] + b"?")
            self._kill()
        return commands


def _method(original: Any, replacement: Any) -> Any:
    def method(machine: Any, gang: Any, agent: Any, message: Any, *at: float) -> Any:
        return replacement(original(machine, gang, agent, message, *at), message)

    return method


@pytest.mark.parametrize(
    ("killed", "corrupts"),
    [(0, False), pytest.param(1, False, marks=OTHER_RANK), pytest.param(1, True, marks=CORRUPT)],
)
def test_a_model_that_is_split_over_the_members_resumes_from_their_parts(
    pool: st.Pool, alone: Alone, tmp_path: Path, killed: int, corrupts: bool
) -> None:
    """The newest step has no manifest, or a part with other bytes: the gang resumes from the checkpoint before it."""
    steps = keras_jax_programs.ROWS // keras_jax_programs.BATCH
    with Interruption(tmp_path, killed, 2 * steps, corrupts=corrupts):
        result = run_split(pool, tmp_path, 2, "epoch")

    assert [restart.rank for restart in result.restarts][:1] == [killed]
    assert result.metrics["from"] == steps
    assert (result.metrics["part"], result.metrics["share"]) == (0.5, 0.5)
    assert result.metrics["loss"] == pytest.approx(alone[0]["loss"], rel=0, abs=EQUAL)
    left = {path.name.split(".", 1)[1] for path in tmp_path.glob(f"runs/*/*/*/*/gen-0001/data/{2 * steps:08d}-*")}
    assert corrupts or left == PART_NAMES, "the parts of both members, without a manifest"
    assert corrupts or not list(tmp_path.glob(f"runs/*/*/*/*/gen-0001/manifest-{2 * steps:08d}"))

    # One process reads what two have saved.
    checkpoint = str(tmp_path / "checkpoint")
    restored = run(pool, tmp_path, keras_jax_programs.read_checkpoint, 1, backend="none", checkpoint=checkpoint).metrics
    assert (restored["step"], restored["part"]) == (steps, 1.0)
    assert restored["variables"] > 10


@pytest.mark.all(
    case="four members read what two have saved of a split model", covered_by="two members and one read it"
)
def test_more_members_read_what_two_have_saved(pool: st.Pool, tmp_path: Path) -> None:
    steps = keras_jax_programs.ROWS // keras_jax_programs.BATCH
    with Interruption(tmp_path, 1, 2 * steps, corrupts=False):
        run_split(pool, tmp_path, 2, "epoch")
    with st.pool(st.local(slots=4), preload=pool_modules("jax")) as larger:
        checkpoint = str(tmp_path / "checkpoint")
        restored = run(
            larger, tmp_path, keras_jax_programs.read_checkpoint, 4, backend="jax", checkpoint=checkpoint
        ).metrics
    assert (restored["step"], restored["part"]) == (steps, 0.25)


@pytest.mark.all(
    case="a loop of the user's own, and a fit by time, save a split model", covered_by="a fit that saves each epoch"
)
def test_a_loop_and_a_fit_by_time_save_a_split_model(pool: st.Pool, tmp_path: Path) -> None:
    metrics = run(pool, tmp_path, keras_jax_programs.loop_split, 2).metrics
    assert metrics == {"first": 2, "generation": 2, "falls": 1.0}
    by_time = run_split(pool, tmp_path, 2, "0.01s")
    assert by_time.metrics["share"] == 0.5


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ("shape", r"DeviceMesh\(shape=\(1, 4\)\) has 4 devices, and the gang has 2 .*change its shape"),
        pytest.param(
            "devices",
            r"the mesh of keras.distribution.DataParallel has 1 devices, and the gang has 2 ",
            marks=OTHER_MESH,
        ),
    ],
)
def test_a_mesh_that_does_not_fit_the_gang_is_refused(pool: st.Pool, tmp_path: Path, how: str, problem: str) -> None:
    with pytest.raises(st.RunFailedError, match=problem):
        run(pool, tmp_path, keras_jax_programs.misfit, 2, how=how)


ALONE = """
import sys
import sparktrain as st
from tests.process import keras_jax_programs

folder = sys.argv[1]
with st.testing.local_context(size=2, backend="jax", mirrored=True) as ctx:
    keras_jax_programs.train(folder, 10**6, ctx)
    assert ctx.allgather(1.0).tolist() == [1.0, 1.0]
with st.testing.local_context(size=2, backend="jax") as ctx:
    try:
        keras_jax_programs.train(folder, 10**6, ctx)
    except st.GangNeededError as error:
        print(error, "tensorflow" in sys.modules)
"""


@pytest.mark.all(case="a test of a user for Keras on JAX", covered_by="`training/test_lone_member`: on TensorFlow")
def test_a_test_of_a_user_needs_no_other_member_where_these_mirror_it(tmp_path: Path) -> None:
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    command = [sys.executable, "-c", ALONE, str(tmp_path)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert "needs all 2 members of the gang" in ended.stdout
    assert ended.stdout.endswith("False\n")
    assert (tmp_path / "2-rank-0.npz").exists()


def test_an_optimizer_averages_by_hand_and_what_cannot_average_is_refused(pool: st.Pool, tmp_path: Path) -> None:
    metrics = run(pool, tmp_path, keras_jax_programs.by_hand, 2).metrics
    assert metrics == {"refusals": len(keras_jax_programs.REFUSALS)}
