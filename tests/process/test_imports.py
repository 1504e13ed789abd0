"""What a process imports at its start, and what it imports only on use."""

import subprocess
import sys
from pathlib import Path

import pytest

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
        "    assert cli.main([name, sys.argv[1]]) == 0\n"
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
    assert loaded("sparktrain.executor.nursery", {"pyspark", "pandas", "pyarrow", "numpy", "cryptography"}) == "[] 1"


def test_a_zygote_imports_neither_grpc_nor_cryptography() -> None:
    assert loaded("sparktrain.training.__main__", {"grpc", "cryptography", "pyspark", "numpy"}) == "[] 1"
