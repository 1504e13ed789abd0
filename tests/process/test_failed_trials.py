"""Each way in which a trial fails has a kind and a message of its own, and the sweep continues after each of them."""

import hashlib
import random
import re
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from tests.support.processes import wait_until

LOG_BYTES, CHUNK_BYTES, LIMIT_BYTES, TAIL_BYTES = 100 * 10**6, 10**6, 2**20, 64 * 2**10
TWO_SLOTS = st.local(slots=2)
ALLOWED = "; return a number, or a flat dict of metric names to numbers"

FAILURES = {
    "exception": ("exception", "ValueError: the learning rate is cursed"),
    "unpicklable": ("exception", "Stubborn: holds a lock"),
    "segfault": (
        "signal",
        "ended by SIGSEGV (segmentation fault): a native library crashed; the log shows where, if Python printed it",
    ),
    "os._exit": ("exit", "process exited with code 3 before the function returned (os._exit, or a native library)"),
    "sys.exit": ("exit", "sys.exit(0) was called before the function returned a result"),
    "nan": (
        "metric",
        "metric 'accuracy' is nan, and no finite number: did the training diverge? A lower learning rate may help",
    ),
    "infinite": (
        "metric",
        "metric 'accuracy' is -inf, and no finite number: did the training diverge? A lower learning rate may help",
    ),
    "misspelt": ("metric", "the result lacks metric 'accuracy'; it has 'acuracy', 'loss': is 'acuracy' meant?"),
    "text": ("result", f"the function returned '0.5' of type str{ALLOWED}"),
    "nested": ("metric", f"the result lacks metric 'accuracy' as a number: it is a dict of 1{ALLOWED}"),
    "nothing": ("result", f"the function returned None{ALLOWED}"),
    "slow": ("timeout", "ran longer than trial_timeout (6 s) and was stopped"),
}
GOOD = {"number": 0.5, "dict": 0.75}
OUTSIDE = "ended by SIGKILL (killed): from outside of sparktrain, and not for lack of memory"


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, st.TrialResult]:
    """The trials of one sweep, by the way they fail; the first and the last one succeed."""

    class Stubborn(Exception):  # noqa: N818
        def __init__(self, lock: Any) -> None:
            super().__init__("holds a lock")
            self.lock = lock

        def __reduce__(self) -> Any:
            raise TypeError("cannot be pickled")

    def train(how: str) -> Any:
        import ctypes
        import os
        import signal
        import sys
        import threading

        print(f"this is {how}")
        print(f"beyond {how}", file=sys.stderr)
        if how == "exception":
            raise ValueError("the learning rate is cursed")
        if how == "unpicklable":
            raise Stubborn(threading.Lock())
        acts = {
            "segfault": lambda: ctypes.string_at(0),
            "os._exit": lambda: os._exit(3),
            "sys.exit": lambda: sys.exit(0),
            "slow": signal.pause,
        }
        results = {
            "nan": float("nan"),
            "infinite": {"accuracy": float("-inf")},
            "misspelt": {"acuracy": 0.5, "loss": 1.0},
            "text": "0.5",
            "nested": {"accuracy": {"train": 0.5}},
            "number": 0.5,
            "dict": {"accuracy": 0.75, "loss": 1},
        }
        return acts[how]() if how in acts else results.get(how)

    ways = ["number", *FAILURES, "dict"]
    runs = str(tmp_path_factory.mktemp("failures"))
    options = {"dir": runs, "name": "ways", "trial_timeout": 6, "preload": [], "progress": False}
    result = st.sweep(train, {"how": ways}, metric="accuracy", spark=TWO_SLOTS, **options)
    assert result.status == "succeeded"
    assert result.best.params == {"how": "dict"}
    assert [trial.params["how"] for trial in result.trials] == ways
    return {trial.params["how"]: trial for trial in result.trials}


@pytest.mark.parametrize("how", FAILURES)
def test_a_failed_trial_reports_its_cause_and_keeps_its_log(swept: dict[str, st.TrialResult], how: str) -> None:
    trial = swept[how]
    kind, summary = FAILURES[how]
    assert trial.status == "failed"
    assert trial.error is not None
    assert (trial.error.kind, re.sub(r"to [\d,]+ MiB", "to N MiB", trial.error.summary)) == (kind, summary)
    assert (trial.metrics, trial.generations) == ({}, 1)
    log = Path(str(trial.log)).read_text()
    assert log.startswith(f"this is {how}\nbeyond {how}\n")
    if kind != "timeout":  # the coordinator reports a timeout before it has the log
        assert trial.error.log_tail[:2] == (f"this is {how}", f"beyond {how}")


def test_traceback_and_crash_dump_show_the_line_of_the_user(swept: dict[str, st.TrialResult]) -> None:
    raised, crashed = swept["exception"].error, Path(str(swept["segfault"].log)).read_text()
    assert raised is not None
    assert 'raise ValueError("the learning rate is cursed")' in raised.traceback
    assert "sparktrain/training" not in raised.traceback
    assert "Fatal Python error: Segmentation fault" in crashed
    assert "in train" in crashed
    assert "in train" in Path(str(swept["slow"].log)).read_text()


@pytest.mark.parametrize("how", GOOD)
def test_other_trials_of_the_sweep_succeed(swept: dict[str, st.TrialResult], how: str) -> None:
    assert swept[how].status == "succeeded"
    assert swept[how].error is None
    assert swept[how].metrics["accuracy"] == GOOD[how]


def killed(times: int, folder: str, ctx: Any) -> float:
    """The first processes get SIGKILL, as from an operator."""
    import os
    import signal
    import time

    lives = Path(folder) / f"{times}-{ctx.rank}"
    with lives.open("a") as file:
        file.write("x")
    if len(lives.read_text()) <= times and ctx.rank == ctx.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60 * (ctx.size > 1 and ctx.rank == 0))
    return 1.0


def test_a_process_that_is_killed_from_outside_is_a_loss_in_a_sweep_and_in_a_gang(runs: Path) -> None:
    options: dict[str, Any] = {"dir": str(runs), "preload": [], "progress": False, "spark": TWO_SLOTS, "max_retries": 1}
    swept = st.sweep(killed, {"times": [1, 2], "folder": [str(runs)]}, metric="r", mode="max", name="swept", **options)
    assert [trial.status for trial in swept.trials] == ["succeeded", "lost"]
    restarts = [restart for trial in swept.trials for restart in trial.restarts]
    assert [(restart.kind, restart.cause) for restart in restarts] == [("killed", OUTSIDE)] * 2
    with pytest.raises(st.RunLostError, match=OUTSIDE.replace("(", r"\(").replace(")", r"\)")) as lost:
        st.run(killed, {"times": 9, "folder": str(runs)}, workers=2, backend="none", name="gang", **options)
    assert len(lost.value.restarts) == 1
    assert lost.value.restarts[0].endswith(", without a checkpoint")


def test_a_mistake_in_the_function_ends_the_sweep_after_the_first_trials(runs: Path) -> None:
    def train(x: int) -> float:
        return {"loss": x}["accuracy"]

    space = {"x": list(range(40))}
    call = {"spark": TWO_SLOTS, "dir": str(runs), "name": "mistake", "preload": [], "progress": False}
    first = st.sweep(train, space, metric="y", mode="max", max_concurrent_trials=2, **call)
    assert first.status == "failed"
    assert str(first.reason).startswith("the first 4 trials failed alike, with: KeyError: 'accuracy'; ")
    counts = [trial.status for trial in first.trials].count
    assert counts("failed") <= 8
    assert counts("failed") + counts("stopped") == len(first.trials)
    corrected = st.sweep(lambda x: x, space, metric="y", mode="max", retry_failed=True, allow_changed=["code"], **call)
    assert [trial.status for trial in corrected.trials] == ["succeeded"] * 40


def noise() -> bytes:
    """Bytes without a newline that are not UTF-8: they start with continuation bytes."""
    return b"\x80\xff" + random.Random(7).randbytes(CHUNK_BYTES - 2).replace(b"\n", b"\xfe")


def print_noise(chunks: int) -> float:
    import os

    chunk = noise()
    for _ in range(chunks):
        rest = memoryview(chunk)
        while rest:
            rest = rest[os.write(1, rest) :]
    return 1.0


def test_a_log_of_any_bytes_is_stored_up_to_its_limit_and_no_scratch_folder_is_left(runs: Path) -> None:
    def train(how: str) -> float:
        import os

        if how == "where":
            print(os.getcwd())
        return print_noise(LOG_BYTES // CHUNK_BYTES if how == "noise" else 0)

    options = {"metric": "result", "mode": "max", "dir": str(runs), "progress": False, "preload": []}
    with st.pool(st.local(slots=1), preload=[]) as pool:
        whole = pool.sweep(train, {"how": ["noise", "where"]}, name="whole", **options)
        capped = pool.sweep(train, {"how": ["noise"]}, name="capped", log_limit=LIMIT_BYTES, **options)
        noisy, where = (Path(str(trial.log)) for trial in whole.trials)
        scratch = next(path for path in Path(where.read_text().strip()).parents if "sparktrain-agent-" in path.name)
        assert scratch.is_dir()
    expected = noise()
    digest = hashlib.sha256()
    for _ in range(LOG_BYTES // CHUNK_BYTES):
        digest.update(expected)
    with noisy.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").digest() == digest.digest()
    kept = Path(str(capped.trials[0].log)).read_bytes()
    marker = b"\n[sparktrain] log capped at 1048576 bytes: the rest is dropped, set log_limit to keep more\n"
    assert kept[:LIMIT_BYTES] == (expected * 2)[:LIMIT_BYTES]
    assert kept[LIMIT_BYTES:] == marker + expected[-TAIL_BYTES:]
    wait_until(lambda: not scratch.exists(), 15.0, "the agent removes its scratch folder")


def test_a_trial_whose_agent_lost_its_files_is_retried(runs: Path) -> None:
    """YARN deletes the files of a container before its last process has ended."""

    def train(x: int, ctx: Any) -> float:
        import shutil
        from pathlib import Path

        if ctx.generation == 1:
            shutil.rmtree(next(each for each in Path(ctx.log_dir).parents if each.name.startswith("sparktrain-agent-")))
            raise FileNotFoundError("some file of the container")
        return float(x)

    options = {"max_concurrent_trials": 1, "dir": str(runs), "spark": TWO_SLOTS, "progress": False, "preload": []}
    result = st.sweep(train, {"x": [7]}, metric="y", mode="max", max_retries=1, **options)
    [trial] = result.trials
    assert (trial.status, trial.metrics, trial.generations) == ("succeeded", {"y": 7.0}, 2)
    [restart] = trial.restarts
    assert re.fullmatch(r"agent on .+ was lost: .*", restart.cause), restart.cause
