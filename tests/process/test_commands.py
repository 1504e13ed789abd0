"""The command line as processes of their own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.processes import wait_until
from tests.unit.cli.submissions import ID, behave, in_cluster, yarn_at

ROOT = Path(__file__).parents[2]


def test_a_closed_pipe_of_the_reader_is_no_error(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom sparktrain import cli\nfrom sparktrain.cli import train_commands\n"
        "from sparktrain.runs.sweep_outcome import SweepOutcome, SweepStatus\n"
        "ended = train_commands.CommandOutcome(SweepOutcome(name='m', status=SweepStatus.SUCCEEDED), '')\n"
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
    stderr = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 0, stderr
    assert stderr == b""


def test_a_shell_completes_commands() -> None:
    asked = {"_SPARKTRAIN_COMPLETE": "complete_bash", "COMP_WORDS": "sparktrain st", "COMP_CWORD": "1"}
    command = [str(Path(sys.executable).parent / "sparktrain")]
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["status"], done.stderr


def test_a_command_loads_keras_without_its_wrappers_for_scikit_learn(tmp_path: Path) -> None:
    """A package with the names of Keras beside the function shows what the command imports."""
    wrappers = tmp_path / "keras" / "wrappers"
    wrappers.mkdir(parents=True)
    (tmp_path / "keras" / "__init__.py").write_text("from keras import wrappers\nprint('keras')\n")
    (wrappers / "__init__.py").write_text("print('wrappers')\nSKLearnClassifier = object\n")
    (tmp_path / "train.py").write_text("import keras\n")
    line = [sys.executable, "-m", "sparktrain", "sweep", "train.py:train", "--grid", "x=1", "--local"]
    ran = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 2, ran.stderr
    assert "train" in ran.stderr
    assert (ran.stdout + ran.stderr).splitlines().count("keras") == 1
    assert "wrappers" not in ran.stdout + ran.stderr


def test_ctrl_c_leaves_an_application_in_the_cluster_and_prints_how_to_end_it(
    tmp_path: Path,
) -> None:
    spark = tmp_path / "spark"
    (spark / "bin").mkdir(parents=True)
    behave(spark, f"echo $$ > {spark}/pid\nexec sleep 600")
    line = [sys.executable, "-m", "sparktrain", *in_cluster(tmp_path)]
    more = {"PYTHONPATH": str(ROOT), "SPARK_HOME": str(spark), "YARN_CONF_DIR": str(tmp_path / "conf")}
    with (
        yarn_at(tmp_path / "conf") as yarn,
        subprocess.Popen(line, cwd=tmp_path, env={**os.environ, **more}, stderr=subprocess.PIPE) as process,
    ):
        yarn.become("RUNNING")
        wait_until(
            lambda: yarn.asked and (spark / "pid").exists() and (spark / "pid").read_text(),
            30.0,
            "the application runs",
        )
        process.send_signal(signal.SIGINT)
        stderr = process.communicate(timeout=30)[1].decode()
    assert process.returncode == 130
    assert f"error: interrupted; {ID} continues without this command: yarn application -kill {ID} ends it" in stderr
    pid = int((spark / "pid").read_text())
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), 10.0, "spark-submit has ended")
