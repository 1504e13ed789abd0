"""What a process imports at its start, and what it imports only on use."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.board_readers import BoardReader
from tests.unit.driver.stored import typical

ROOT = Path(__file__).parents[2]


def test_driver_and_agent_import_no_framework() -> None:
    modules = "sparktrain, sparktrain.cli, sparktrain.executor.agent, sparktrain.training.member"
    frameworks = {"tensorflow", "keras", "horovod"}
    code = f"import sys, {modules}; print({frameworks} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "set()"


def test_the_help_loads_neither_spark_nor_pandas() -> None:
    script = (
        "import sys\nfrom sparktrain import cli\ncli.main(['sweep', '--help'])\n"
        "print([name for name in ('pyspark', 'pandas', 'tensorflow', 'grpc') if name in sys.modules], file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", script], timeout=60, capture_output=True, text=True)
    assert ended.stderr == "[]\n"


HEAVY = (
    "pyspark py4j pandas numpy tensorflow grpc pyarrow cloudpickle optuna pydantic asyncio ssl cryptography "
    "importlib.metadata email yaml sparktrain.config.option_catalog sparktrain.cli.train_commands"
)
"""What no command that looks at a run may load: each is between a tenth and five times of all that `ls` takes."""


@pytest.mark.parametrize(
    ("line", "also"),
    [
        ("--version", "typer rich msgspec sparktrain.cli.command_table"),
        ("ls .", ""),
        ("ls . --json", "rich.console rich.table"),
        ("status RUN", ""),
        ("best RUN --top 2", ""),
        ("logs RUN", ""),
        ("diff RUN RUN", ""),
    ],
)
def test_a_command_that_looks_at_runs_imports_only_what_it_needs(line: str, also: str, tmp_path: Path) -> None:
    run = typical(tmp_path / "runs")
    script = (
        "import sys\nfrom sparktrain.cli import main\nassert main(sys.argv[2:]) == 0\n"
        "print([name for name in sys.argv[1].split() if name in sys.modules], file=sys.stderr)"
    )
    words = [run.directory if word == "RUN" else word for word in line.split()]
    done = subprocess.run(
        [sys.executable, "-I", "-c", script, f"{HEAVY} {also}", *words],
        cwd=tmp_path / "runs",
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert done.stderr == "[]\n"
    assert done.stdout


def test_upkeep_of_a_run_imports_no_spark(tmp_path: Path) -> None:
    run = typical(tmp_path / "runs")
    script = (
        "import sys\nfrom sparktrain import cli\n"
        "for name in ('fsck', 'gc'):\n"
        "    assert cli.main([name, sys.argv[1], *(('--older-than', '0.01s') if name == 'gc' else ())]) == 0\n"
        "heavy = ('pyspark', 'py4j', 'pandas', 'numpy', 'tensorflow', 'grpc', 'pyarrow', 'cloudpickle', 'pydantic')\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script, run.directory], timeout=60, capture_output=True, text=True)
    assert done.stderr == "[]\n"


def test_opening_an_object_store_imports_no_client() -> None:
    code = "import sys\nfrom sparktrain.store.url import open_store\nopen_store('s3://bucket/a')\n"
    code += "print({'fsspec', 's3fs', 'botocore', 'aiohttp'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "set()"


def loaded(modules: str, wanted: set[str]) -> str:
    """The packages that a process loads with these modules, and the number of its threads."""
    code = f"import os, sys, {modules}; print(sorted({wanted} & set(sys.modules)), len(os.listdir('/proc/self/task')))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


def test_a_local_run_imports_neither_spark_nor_pandas() -> None:
    modules = "sparktrain, sparktrain.cli, sparktrain.api, sparktrain.driver.engines.local_engine"
    assert loaded(modules, {"pyspark", "py4j", "pandas", "pyarrow", "yaml", "hdfs_native"}) == "[] 1"


def test_the_nursery_has_one_thread_and_imports_no_spark() -> None:
    assert (
        loaded("sparktrain.executor.nursery", {"pyspark", "pandas", "pyarrow", "numpy", "cryptography", "grpc"})
        == "[] 1"
    )


def test_a_zygote_imports_neither_grpc_nor_cryptography() -> None:
    assert loaded("sparktrain.training.__main__", {"grpc", "cryptography", "pyspark", "numpy"}) == "[] 1"


def test_a_member_of_a_tfcluster_imports_no_driver() -> None:
    modules = "sparktrain.tensorflowonspark.node_context, sparktrain.tensorflowonspark.util"
    assert loaded(modules, {"sparktrain.api", "sparktrain.driver", "grpc"}).startswith("[] ")


def test_options_that_are_text_cost_no_import_of_pydantic() -> None:
    """Typer converts values with it, which takes a tenth of the start of a local sweep."""
    words = [
        "sweep",
        "no_such_file.py:train",
        "--grid",
        "lr=1",
        "--metric",
        "loss",
        "--env",
        "A=1",
        "--json",
        "--local",
    ]
    program = f"import sys; from sparktrain.cli import main; print(main({words}), 'pydantic' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "2 False\n"


OPENING = """
import sys
import sparktrain as st
result = st.load(sys.argv[1])
print(result.best.id, len(result.history()), len(result.failures()), result.trials[0].read_log())
print(sorted(name for name in ("pyspark", "tensorflow", "keras", "grpc", "optuna") if name in sys.modules))
"""


def test_a_run_opens_without_spark_and_tensorflow(tmp_path: Path) -> None:
    run = typical(tmp_path / "runs")
    run.note(0, 1, 2, 3)
    command = [sys.executable, "-c", OPENING, run.directory]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == ["0 3 1 epoch 1", "epoch 2", "", "[]"]


def test_lists_need_no_optuna() -> None:
    code = (
        "import sys\n"
        "from sparktrain.search.named_samplers import SamplerChoice\n"
        "from sparktrain.search.sampled_space import space\n"
        "from sparktrain.search.optuna_sampler import Goal\n"
        "from sparktrain import grid, uniform\n"
        "SamplerChoice(goal=Goal('y', True)).sampler(grid(a=[1])).suggest(1)\n"
        "SamplerChoice(trials=3, goal=Goal('y', True)).sampler(space(a=uniform(0, 1)))\n"
        "assert 'optuna' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_hook_of_horovod_imports_no_framework_and_leaves_absent_packages_absent() -> None:
    program = (
        "import sys\n"
        "from sparktrain.training.frameworks.tensorflow.horovod_names import import_hook\n"
        "import_hook.prepare()\n"
        "sys.modules['horovod'] = None\n"
        "try:\n"
        "    import horovod.keras\n"
        "except ModuleNotFoundError as error:\n"
        "    print(sorted({'tensorflow', 'keras', 'numpy'} & sys.modules.keys()))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_no_library_is_imported_for_another_ones_model(tmp_path: Path) -> None:
    program = (
        "import sys; from sparktrain.training.export import export; open('m.bin', 'w').close()\n"
        "export('m.bin', 'home', 0)\n"
        "libraries = ('keras', 'sklearn', 'joblib', 'skops', 'xgboost', 'lightgbm')\n"
        "print([each for each in libraries if each in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr


def test_results_load_no_plots_until_they_are_asked_for() -> None:
    program = (
        "import sys, sparktrain.results.stored_result as s; assert s.load; "
        "print([n for n in sys.modules if n.startswith(('sparktrain.views.report', 'optuna', 'numpy', 'pandas'))])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "[]"


EVENTS = """\
import sys
from pathlib import Path
from sparktrain.views.board.report_events import HParamColumn, Point, ReportEvents
from sparktrain.state.trial import TrialStatus
events = ReportEvents(Path(sys.argv[1]))
events.space([HParamColumn("lr", float)], ["y"])
events.start(0, {"lr": 0.5}, 1.0)
events.add(0, [Point("y", 1, 1.0, 2.0)])
events.end(0, TrialStatus.SUCCEEDED, 2.0)
"""


def test_event_files_are_written_without_tensorflow(tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text("raise RuntimeError('TensorFlow is imported')")
    board = tmp_path / "board"
    board.mkdir()
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{EVENTS}"
    subprocess.run([sys.executable, "-c", code, str(board)], check=True, timeout=60)
    assert BoardReader(board).points("0000/sparktrain", "y") == [(1, 2.0)]
