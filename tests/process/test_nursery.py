"""The nursery of local runs imports once for all zygotes, and stays for the next run while nothing it has differs."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import sparktrain as st
from sparktrain.driver import pool
from sparktrain.driver.engines.nursery_process import NURSERIES
from tests.support.processes import Sighted, descendants, wait_until

GONE_S = 20.0
LIBRARY = "import os\nwith open(os.environ['SEEN'], 'a') as seen: print('{name}', os.getpid(), file=seen)\n"
DRIVER = """
import sys, time, sparktrain as st
def train(x): return {"y": 1.0}
st.sweep(train, {"x": [1]}, metric="y", mode="max", spark=st.local(slots=1), dir=sys.argv[1], preload=["catboost"])
open(sys.argv[1] + "/idle", "w")
time.sleep(1000)
"""


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Has a line for each import of a library, and of a module of the user: its name, and the process."""
    NURSERIES.end()
    monkeypatch.setattr(pool, "LEAVE_TIMEOUT_S", GONE_S)  # with agents that leave too slowly it is not kept
    (tmp_path / "lib").mkdir()
    for name in ("catboost", "mine"):
        (tmp_path / "lib" / f"{name}.py").write_text(LIBRARY.format(name=name))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    return tmp_path / "seen"


def imports(seen: Path, *preload: str) -> list[tuple[str, int]]:
    """The imports of a run, in which each of two trials has both modules, one thread, and no gRPC."""
    folder = seen.parent

    def train(x: int) -> dict[str, float]:
        import os
        import sys

        from sparktrain.base.clock import pause

        (folder / f"trial-{x}").touch()
        for _ in range(3000):  # a minute: one slot could have run both before the other one has imported anything
            if (folder / f"trial-{1 - x}").exists():
                break
            pause(0.02)
        loaded = float({"catboost", "mine"} <= sys.modules.keys())
        return {"y": loaded, "threads": len(os.listdir("/proc/self/task")), "grpc": float("grpc" in sys.modules)}

    for path in (seen, folder / "trial-0", folder / "trial-1"):
        path.unlink(missing_ok=True)
    result = st.sweep(
        train, {"x": [0, 1]}, metric="y", mode="max", spark=st.local(slots=2), dir=str(folder / "runs"),
        preload=preload, progress=False,
    )  # fmt: skip
    assert [trial.metrics for trial in result.trials] == [{"y": 1.0, "threads": 1.0, "grpc": 0.0}] * 2
    lines = seen.read_text().split() if seen.exists() else []
    return sorted(zip(lines[::2], map(int, lines[1::2]), strict=True))


def test_zygotes_have_libraries_of_one_import_and_the_users_modules_of_their_own(
    seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (_, nursery), (_, first), (_, second) = imports(seen, "catboost", "mine")
    assert [each.pid for each in descendants(os.getpid(), "executor.nursery")] == [nursery]
    assert len({nursery, first, second}) == 3
    assert [name for name, _ in imports(seen, "catboost", "mine")] == ["mine", "mine"]
    # A library may read it; what other tests of this process have loaded may have set it to 1.
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    (_, other), *_ = imports(seen, "catboost", "mine")
    os.kill(other, signal.SIGKILL)
    assert imports(seen, "mine", "catboost")[0][1] not in (nursery, other)
    [kept] = descendants(os.getpid(), "executor.nursery")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert [name for name, _ in imports(seen, "catboost", "mine")] == ["catboost", "catboost", "mine", "mine"]
    assert not kept.is_running()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    NURSERIES.end()
    assert not descendants(os.getpid(), "executor.nursery")


def test_a_library_that_ends_its_process_ends_no_run(seen: Path) -> None:
    (seen.parent / "lib" / "catboost.py").write_text("import os\nos._exit(3)\n")
    with st.pool(st.local(slots=1), preload=["catboost"]) as pool:
        result = pool.sweep(lambda x: {"y": x}, {"x": [1.0]}, metric="y", mode="max", dir=str(seen.parent / "runs"))
    assert result.best.metrics == {"y": 1.0}


@pytest.mark.parametrize("moment", ["idle", "importing"])
def test_a_nursery_ends_with_its_killed_driver(tmp_path: Path, seen: Path, moment: str) -> None:
    if moment == "importing":
        wait = f"import ctypes\nopen({str(tmp_path / moment)!r}, 'w')\nctypes.CDLL(None).sleep(1000)\n"
        (tmp_path / "lib" / "catboost.py").write_text(wait)
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path)], stderr=subprocess.DEVNULL)
    wait_until((tmp_path / moment).exists, 60.0, moment)
    below = Sighted(each.pid for each in descendants(driver.pid))
    driver.kill()
    driver.wait()
    assert below.processes
    below.wait_gone(GONE_S)
