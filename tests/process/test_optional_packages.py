"""What works without PySpark and pandas, in processes that cannot import them, and what the rest answers."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.unit.driver.stored import ScriptedRun, typical

BLOCKED = """\
import sys


class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "pandas"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Blocked())
"""
"""What each process executes at its start, the nursery and the zygotes of a local run included."""
PROGRAM = """\
import sparktrain as st


def train(x, ctx):
    try:
        import pandas
    except ModuleNotFoundError:
        pass
    else:
        raise AssertionError("pandas is there")
    for step in range(2):
        ctx.report(step, loss=1.0 / x)
    return {"loss": 1.0 / x}


if __name__ == "__main__":
    result = st.sweep(train, {"x": [1, 2]}, metric="loss", spark=st.local(), name="first", progress=False)
    print(result)
    assert result.best.params == {"x": 2}
    assert st.run(train, {"x": 4}, workers=1, spark=st.local(), name="alone", progress=False).metrics == {"loss": 0.25}
    assert st.load("sparktrain-runs/first").best.params == {"x": 2}
    assert result.report().is_file()
    for what, call in {
        "to_pandas()": result.to_pandas,
        "history": result.history,
        "reports()": result.reports,
        "failures": result.failures,
    }.items():
        try:
            call()
        except st.SpecError as error:
            wanted = f"{what} needs pandas, which is not installed: pip install 'sparktrain[pandas]'"
            assert str(error) == wanted, error
        else:
            raise AssertionError(what)
"""
REFUSED = """\
import sparktrain as st


def train(x):
    return x


calls = {
    "sweep()": lambda: st.sweep(train, {"x": [1]}, metric="loss"),
    "launch()": lambda: st.launch(None, train, {"x": [1]}),
    "run()": lambda: st.run(train, {"x": 1}),
    "resume()": lambda: st.resume("sparktrain-runs/first"),
    "extend()": lambda: st.extend("sparktrain-runs/first", trials=3),
    "refit()": lambda: st.refit("sparktrain-runs/first"),
    "pool()": lambda: st.pool(),
    "session()": lambda: st.session("local[2]"),
    "a call without spark=": lambda: st.register_predict(None, "scored", "sparktrain-runs/first"),
    "sparktrain.ml.KerasEstimator": lambda: st.ml.KerasEstimator,
    "tensorflowonspark.pipeline": lambda: st.tensorflowonspark.pipeline,
}
for what, call in calls.items():
    try:
        call()
    except st.SessionError as error:
        assert str(error).startswith(f"{what} needs PySpark, which is not installed: pip install 'sparktrain[spark]'")
    else:
        raise AssertionError(what)
"""


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of processes without PySpark and pandas."""
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "sitecustomize.py").write_text(BLOCKED)
    kept = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYTHONPATH")}
    return {**kept, "PYTHONPATH": str(tmp_path / "blocked")}


def run(words: list[str], folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )


def test_local_runs_and_their_results_work_without_pyspark_and_pandas(tmp_path: Path, bare: dict[str, str]) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    ended = run(["program.py"], tmp_path, bare)
    assert ended.returncode == 0, ended.stderr
    assert "first: succeeded. 2 trials" in ended.stdout


COMMANDS = """\
ls runs
status RUN
best RUN
logs RUN
diff RUN RUN
export RUN --csv
export RUN --jsonl --history
export RUN --parquet --reports -o reports.parquet
simulate RUN
fsck RUN
gc RUN --dry-run --older-than 0.01s
report RUN
doctor
sweep train.py:train --grid x=1,2 --metric loss --local --quiet
"""


def test_commands_work_without_pyspark_and_pandas(reported: ScriptedRun, bare: dict[str, str]) -> None:
    folder = Path(reported.directory).parents[1]
    (folder / "train.py").write_text("def train(x):\n    return {'loss': x}\n")
    script = (
        "import sys\nfrom sparktrain.cli import main\n"
        "for line in sys.argv[1].splitlines():\n    assert main([*line.split(), '--debug']) == 0, line\n"
    )
    ended = run(["-c", script, COMMANDS.replace("RUN", reported.directory)], folder, bare)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "pip install 'sparktrain[spark]'" in ended.stdout  # of the doctor


@pytest.fixture
def reported(tmp_path: Path) -> ScriptedRun:
    made = typical(tmp_path / "runs")
    made.note(0, 1, 2, loss=0.5, accuracy=0.9)
    return made


def test_what_needs_a_session_names_the_extra_and_starts_nothing(tmp_path: Path, bare: dict[str, str]) -> None:
    (tmp_path / "program.py").write_text(REFUSED)
    ended = run(["program.py"], tmp_path, bare)
    assert ended.returncode == 0, ended.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blocked", "program.py"]
    ended = run(["-m", "sparktrain", "sweep", "program.py:train", "--grid", "x=1"], tmp_path, bare)
    assert ended.returncode == 2
    assert ended.stderr == (
        "error: this command needs PySpark, which is not installed: pip install 'sparktrain[spark]', or set SPARK_HOME "
        "to the Spark of your cluster; spark=sparktrain.local() (--local) trains on this machine without Spark\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blocked", "program.py"]


def spark_at(home: Path, version: str) -> Path:
    """A Spark with a PySpark of that version, and Py4J beside it as an archive."""
    (home / "python" / "pyspark").mkdir(parents=True)
    (home / "python" / "lib").mkdir()
    (home / "python" / "pyspark" / "__init__.py").write_text(f"import py4j\n__version__ = '{version}'\n")
    with zipfile.ZipFile(home / "python" / "lib" / "py4j-0.10.9.9-src.zip", "w") as archive:
        archive.writestr("py4j/__init__.py", "")
    return home


@pytest.mark.parametrize(
    ("version", "answer"),
    [
        ("4.1.0", "4.1.0"),
        (
            "3.5.4",
            "sweep() needs PySpark 4, and the one of SPARK_HOME (HOME) is 3.5.4: pip install 'sparktrain[spark]'",
        ),
        (None, "sweep() needs PySpark, which is not installed"),
    ],
)
def test_the_pyspark_of_a_cluster_is_used_where_none_is_installed(
    version: str | None, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fresh process finds only the Spark of SPARK_HOME: as on a gateway node with a virtual environment."""
    home = tmp_path / "spark"
    if version is not None:
        spark_at(home, version)
    script = (
        "import sys\nfrom sparktrain import SessionError\nfrom sparktrain.base import optional_packages\n"
        "sys.path[:] = [each for each in sys.path if 'site-packages' not in each]\n"
        "try:\n    optional_packages.require_spark('sweep()')\n    import pyspark\n    print(pyspark.__version__)\n"
        "except SessionError as error:\n    print(error)\n"
    )
    environment = {**os.environ, "SPARK_HOME": str(home)}
    ended = run(["-c", script], Path.cwd(), environment)
    assert ended.stdout.startswith(answer.replace("HOME)", f"{home})")), ended.stderr
