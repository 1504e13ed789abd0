"""Code of the user is sent to executors, and no trial sees state of another one."""

import importlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

import sparktrain as st

DRIVER_S = 100
QUIET = {"progress": False, "preload": []}


@pytest.fixture
def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Path]]:
    """Writes modules that this process can import and executors cannot; removes them at the end."""
    folder, before = tmp_path / "code", set(sys.modules)
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))

    def write(name: str, text: str) -> Path:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        importlib.invalidate_caches()
        return path

    yield write
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]


def loaded(name: str) -> ModuleType:
    return importlib.import_module(name)


def metrics(result: st.SweepResult) -> list[dict[str, float]]:
    assert result.status == "succeeded", result
    return [trial.metrics for trial in result.trials]


SCRIPT = """
import json, sys
from pathlib import Path
import beside
import sparktrain as st
from tests.support.local_spark import ONE_EXECUTOR, spark_session

OFFSET = 100

class Model:
    def __init__(self, x):
        self.x = x
    def score(self):
        return beside.double(self.x) + OFFSET

def helper(x):
    return Model(x).score()

def train(x):
    return {"y": helper(x), "main": float(__name__ == "__main__")}

def refused(**options):
    try:
        st.sweep(train, {"x": [1]}, metric="y", mode="max", dir=str(folder / "runs"), progress=False, **options)
    except st.SessionError as error:
        return str(error)

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    printed = {"before": refused()}
    with spark_session(ONE_EXECUTOR, folder) as spark:
        result = st.sweep(
            train, {"x": [1, 2]}, metric="y", mode="max", dir=str(folder / "runs"), name="script", progress=False
        )
        printed["metrics"] = [trial.metrics or str(trial.error) for trial in result.trials]
    printed["after"], printed["stopped"] = refused(), refused(spark=spark)
    printed["made"] = sorted(path.name for path in (folder / "runs").iterdir())
    print(json.dumps(printed))
"""


@pytest.mark.all(
    case="a script sends its own function, and fails without a session",
    covered_by="`examples/test_readme`: scripts; modules that executors lack are sent along",
)
def test_a_script_sends_its_own_function_and_the_modules_beside_it(tmp_path: Path) -> None:
    """Without a session, or with a stopped one, it fails, and creates no run directory."""
    (tmp_path / "beside.py").write_text("def double(x):\n    return 2 * x\n")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DRIVER_S, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    printed = json.loads(done.stdout.splitlines()[-1])
    assert [each["y"] for each in printed["metrics"]] == [102.0, 104.0]
    assert printed["made"] == ["script"]
    assert "there is no active SparkSession: make one" in printed["before"]
    assert "there is no active SparkSession: make one" in printed["after"]
    assert "the SparkSession is stopped: make a new one" in printed["stopped"]


def test_a_lambda_and_a_closure_are_sent_by_value(spark: SparkSession, runs: Path) -> None:
    scale, state = 3, {"offset": [10]}

    def inner(x: int) -> int:
        return x * scale

    def closure(x: int) -> float:
        state["offset"].append(99)  # changes the copy of this trial
        return inner(x) + state["offset"][0] + len(state["offset"])

    with st.pool(spark, agents=1, preload=[]) as pool:
        swept = pool.sweep(closure, {"x": [1, 2]}, metric="y", mode="max", dir=str(runs), name="closure", **QUIET)
        simple = pool.sweep(
            lambda x: x + scale, {"x": [1, 2]}, metric="y", mode="max", dir=str(runs), name="lambda", **QUIET
        )
    assert metrics(swept) == [{"y": 15.0}, {"y": 18.0}]
    assert metrics(simple) == [{"y": 4.0}, {"y": 5.0}]
    assert state == {"offset": [10]}


def test_local_modules_that_executors_lack_are_sent_along(
    spark: SparkSession, runs: Path, write_module: Callable[[str, str], Path]
) -> None:
    """Executors import copies of the function's module, of its imports, and of a package with its data."""
    write_module("code_helper.py", "def twice(x):\n    return 2 * x\n")
    write_module("code_package/__init__.py", "from code_package.words import count\n")
    write_module("code_package/words.txt", "seven words are in this file here\n")
    words = "from importlib import resources\ndef count():\n    return len(resources.files('code_package')"
    write_module("code_package/words.py", f"{words}.joinpath('words.txt').read_text().split())\n")
    write_module(
        "code_train.py",
        "import code_helper\ndef train(x):\n    import code_package\n"
        "    print(code_helper.__file__, code_package.__file__, __file__)\n"
        "    return {'y': code_helper.twice(x), 'words': code_package.count()}\n",
    )
    function = loaded("code_train").train
    result = st.sweep(function, {"x": [1, 2]}, metric="y", mode="max", dir=str(runs), name="local", **QUIET)
    assert metrics(result) == [{"y": 2.0, "words": 7.0}, {"y": 4.0, "words": 7.0}]
    files = Path(str(result.trials[0].log)).read_text().split()
    assert len(files) == 3
    assert all("sparktrain-agent-" in file for file in files), files


def test_a_trial_can_import_what_add_py_file_sent(spark: SparkSession, runs: Path, tmp_path: Path) -> None:
    module, archive = tmp_path / "code_added.py", tmp_path / "code_zipped.zip"
    module.write_text("def triple(x):\n    return 3 * x\n")
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("code_zipped/__init__.py", "SIX = 6\n")

    def train(x: int) -> float:
        import code_added
        import code_zipped

        return float(code_added.triple(x) + code_zipped.SIX)

    path = list(sys.path)
    try:
        spark.sparkContext.addPyFile(str(module))
        spark.sparkContext.addPyFile(str(archive))
        result = st.sweep(train, {"x": [1, 2]}, metric="y", mode="max", dir=str(runs), name="added", **QUIET)
    finally:
        sys.path[:] = path
    assert metrics(result) == [{"y": 9.0}, {"y": 12.0}]


def test_a_trial_sees_no_state_of_the_one_before_in_the_same_agent(spark: SparkSession, runs: Path) -> None:
    def train(x: int, ctx: Any) -> dict[str, float]:
        import json.encoder
        import os
        import random
        import signal
        import sys
        import threading
        import time

        import numpy as np

        seen = {
            "agent": os.getppid(),
            "variables": float("LEFT_BEHIND" in os.environ),
            "files": len(os.listdir()),
            "path": float("/left/behind" in sys.path),
            "attribute": float(hasattr(np, "left_behind")),
            "replaced": float(json.encoder.INFINITY == 0),
            "threads": threading.active_count(),
            "umask": os.umask(0o077),
            "alarm": float(signal.getsignal(signal.SIGALRM) is signal.SIG_DFL),
            "as_seeded": float(np.random.rand() == np.random.RandomState(ctx.seed).rand()),
            "draw": random.random(),
        }
        os.environ["LEFT_BEHIND"] = "x"
        Path("left").write_text("behind")
        sys.path.append("/left/behind")
        np.left_behind = json.encoder.INFINITY = 0
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        signal.signal(signal.SIGALRM, lambda *_: None)
        np.random.seed(0)
        random.seed(0)
        os.chdir("/")
        return seen

    options = {"dir": str(runs), "progress": False, "max_concurrent_trials": 1, "seed": 5, "preload": ["numpy"]}
    first, second, third = metrics(
        st.sweep(train, {"x": [0, 1, 2]}, metric="draw", mode="max", name="traces", **options)
    )
    own = {"draw": first["draw"]}
    assert first | own == second | own == third | own
    assert len({trial["draw"] for trial in (first, second, third)}) == 3
    expected = {"variables": 0, "files": 0, "path": 0, "attribute": 0, "replaced": 0, "threads": 1, "as_seeded": 1}
    assert {name: first[name] for name in expected} == expected


def test_the_process_of_the_next_trial_is_forked_before_the_trial_ends(spark: SparkSession, runs: Path) -> None:
    def train(x: int) -> dict[str, float]:
        import os

        import psutil

        from tests.support.processes import wait_until

        def waiting() -> list[int]:
            children = psutil.Process(os.getppid()).children()
            return [child.pid for child in children if child.name() == "member-waiting"]

        wait_until(lambda: len(waiting()) == 1, 20.0, "the process of the next trial waits")
        return {"pid": os.getpid(), "next": waiting()[0]}

    trials = metrics(
        st.sweep(
            train,
            {"x": [0, 1, 2]},
            metric="pid",
            mode="max",
            max_concurrent_trials=1,
            dir=str(runs),
            name="spare",
            **QUIET,
        )
    )
    assert [trial["pid"] for trial in trials[1:]] == [trial["next"] for trial in trials[:2]]


USES_NUMPY = """
import os, sys

def train(x):
    before = {name: float(name in sys.modules) for name in ("numpy", "colorsys", "tensorflow")}
    import numpy
    return {**before, "agent": float(numpy.float64(os.getppid()))}
"""


def test_modules_are_preloaded_by_option_and_by_what_the_function_imports(
    spark: SparkSession, runs: Path, write_module: Callable[[str, str], Path]
) -> None:
    write_module("code_uses_numpy.py", USES_NUMPY)
    function = loaded("code_uses_numpy").train
    options = {"metric": "numpy", "mode": "max", "dir": str(runs), "progress": False}
    by_default = st.sweep(function, {"x": [1]}, max_concurrent_trials=1, name="default", **options)
    with st.pool(spark, agents=1, preload=["colorsys"]) as pool:
        named = pool.sweep(function, {"x": [1]}, preload=[], name="named", **options)
        added = pool.sweep(function, {"x": [1]}, preload=["numpy"], name="added", **options)
    found = [metrics(result)[0] for result in (by_default, named, added)]
    agents = [trial.pop("agent") for trial in found]
    none = {"numpy": 0.0, "colorsys": 0.0, "tensorflow": 0.0}
    assert found == [none | {"numpy": 1.0}, none | {"colorsys": 1.0}, none | {"colorsys": 1.0, "numpy": 1.0}]
    assert agents[1] == agents[2]
