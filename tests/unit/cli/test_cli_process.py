"""The command line as a process of its own."""

import subprocess
import sys
from pathlib import Path


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom sparktrain import cli\nfrom sparktrain.cli import train_commands\n"
        "from sparktrain.runs.results import SweepResult, SweepStatus\n"
        "ended = train_commands.Ended(SweepResult(name='m', status=SweepStatus.SUCCEEDED), '')\n"
        "train_commands.perform_sweep = lambda request: ended\n"
        "sys.stdin.read()\nsys.exit(cli.main(['sweep', 'a.py:b', '--json']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    process.stdin.close()
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 0, said
    assert said == b""


def test_the_help_loads_neither_spark_nor_pandas() -> None:
    script = (
        "import sys\nfrom sparktrain import cli\ncli.main(['sweep', '--help'])\n"
        "print([name for name in ('pyspark', 'pandas', 'tensorflow', 'grpc') if name in sys.modules], file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", script], timeout=60, capture_output=True, text=True)
    assert ended.stderr == "[]\n"
