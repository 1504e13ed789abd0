"""How trials of scripts end: by threads and forked processes of theirs, and by a request to stop."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st

AGENTS = (2,)
Ended = Callable[..., st.SweepResult]


@pytest.fixture
def ended(pool: st.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ended:
    """Writes FILE.py with this body, and sweeps over it with one trial."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def result(file: str, body: str, keep_files: tuple[str, ...] = (), **options: Any) -> st.SweepResult:
        Path(f"{file}.py").write_text(f"import sys\nimport sparktrain  # --lr\n{body}")
        call = {"metric": "loss", "mode": "min", "dir": "runs", "name": "run", "progress": False} | options
        return pool.sweep(st.script(f"{file}.py", keep_files=keep_files), {"lr": [1.0]}, **call)

    return result


def test_a_script_that_forks_reports_from_its_own_process_alone(ended: Ended) -> None:
    body = """
import os
child = os.fork()
if not child:
    try:
        sparktrain.report(loss=2)
    except RuntimeError as error:
        os._exit(0 if "belongs to process" in str(error) else 1)
    os._exit(2)
sparktrain.report(loss=1, child=os.waitpid(child, 0)[1])
"""
    result = ended("forking_script", body)
    assert result.trials[0].metrics == {"loss": 1.0, "child": 0.0}


@pytest.mark.parametrize("end", ["sys.exit(0)", "pass"])
def test_a_script_that_saves_and_ends_when_it_is_stopped_has_not_succeeded(ended: Ended, end: str) -> None:
    body = f"""
import signal
def save(number, frame):
    open("saved.txt", "w").close()
    {end}
signal.signal(signal.SIGTERM, save)
sparktrain.report(loss=1)
signal.pause()
"""
    call: dict[str, Any] = {"trial_timeout": "1s", "keep_files": ["saved.txt"]}
    result = ended("stopped_script", body, **call)
    assert result.trials[0].status == "failed"
    assert "ran longer than trial_timeout" in str(result.trials[0].error)
    assert Path("runs/run/trials/0000/generation-1/rank-0/files/saved.txt").exists()


def test_a_script_ends_with_its_threads_but_for_those_of_an_executor(ended: Ended) -> None:
    body = """
import concurrent.futures, threading
pool = concurrent.futures.ThreadPoolExecutor()
pool.submit(int).result()
main = threading.main_thread()
ended = threading.Event()
def train():
    # Nothing of the script follows its last line: by then its main part is over, or waits for this thread.
    while main_runs():
        ended.wait(0.01)
    sparktrain.report(loss=1)
def main_runs():
    frame = sys._current_frames()[main.ident]
    while frame is not None and frame.f_code.co_filename != __file__:
        frame = frame.f_back
    return frame is not None
threading.Thread(target=train).start()
sys.exit(0)
"""
    result = ended("threading_script", body)
    assert result.trials[0].metrics == {"loss": 1.0}


def test_processes_that_a_script_forks_end_as_they_do_without_sparktrain(ended: Ended) -> None:
    body = """
import os, sys
def ended(end):
    child = os.fork()
    if not child:
        end()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
def fail():
    raise ValueError("in the child")
sparktrain.report(exit=ended(lambda: sys.exit(3)), words=ended(lambda: sys.exit("no words")), error=ended(fail), loss=1)
"""
    result = ended("ending_forks", body)
    assert result.trials[0].metrics == {"exit": 3.0, "words": 1.0, "error": 1.0, "loss": 1.0}
    log = Path("runs/run/trials/0000/generation-1/rank-0/log.txt").read_text()
    assert "ValueError: in the child" in log
    assert "no words" in log
