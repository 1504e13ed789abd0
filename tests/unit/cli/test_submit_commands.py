"""`sparktrain submit` and `pack`, with a small program as spark-submit, and a ResourceManager
that reports what a test sets."""

import io
import json
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparktrain import cli
from sparktrain.cli import submit_commands as commands
from sparktrain.driver.submitted_jobs import follow
from sparktrain.driver.submitted_jobs.env_pack import pack
from sparktrain.driver.submitted_jobs.env_pack.contents import Contents, contents, data_entry
from tests.support.processes import wait_until
from tests.unit.cli.submissions import ID, SWEEP, Yarn, behave, in_cluster, yarn_at
from tests.unit.driver.stored import ScriptedRun

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[3]
ANSWERS = ROOT / "tests" / "unit" / "cluster" / "kubernetes_answers"
POD = "fails-py-7ad57aa22b65a77f-driver"
"""The driver of one of them."""


@pytest.fixture
def yarn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yarn]:
    with yarn_at(tmp_path / "conf") as made:
        monkeypatch.setenv("YARN_CONF_DIR", str(tmp_path / "conf"))
        yield made


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a Spark; `behave` sets what its spark-submit does."""
    home = tmp_path / "spark"
    (home / "bin").mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setattr(follow, "follow", partial(follow.follow, poll_s=0.02))
    return home


def submitted(spark: Path) -> str:
    return (spark / "words").read_text().strip()


def after(yarn: Yarn, spark: Path, then: Any) -> threading.Thread:
    """Once spark-submit runs and the ResourceManager was asked, `then`; spark-submit waits for that, and ends with 0 or
    1."""

    def work() -> None:
        wait_until((spark / "words").exists, 10.0, "spark-submit runs")
        wait_until(lambda: yarn.asked, 10.0, "the ResourceManager is asked")
        code = then()
        (spark / "code").write_text(str(code))

    behave(spark, f"while ! [ -s {spark}/code ]; do sleep 0.02; done\nexit $(cat {spark}/code)")
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_dry_run_prints_the_line_and_does_nothing(spark: Path, capfd: Capture) -> None:
    url = "hdfs://nn/packs/a b.tar.gz"
    words = ["--dry-run", "--label", "gpu", "--executors", "4", "--pack", url, "--conf", "spark.x=y z"]
    assert cli.main(["submit", *words, *SWEEP, "--name", "one"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    [line] = out.splitlines()
    assert line.startswith("spark-submit --master yarn --deploy-mode client --num-executors 4 --archives 'hdfs://nn/")
    assert "--conf 'spark.x=y z'" in line
    assert line.endswith("/jobs/grid_search.py train.py:train --grid lr=1 --metric accuracy --name one")
    assert not (spark / "words").exists()


def test_a_job_here_ends_with_the_code_of_its_driver(spark: Path, capfd: Capture) -> None:
    behave(spark, "echo result; echo progress >&2; exit 4")
    assert cli.main(["submit", "--pack", "none", *SWEEP, "--name", "one"]) == 4
    out, err = capfd.readouterr()
    assert out == "result\n"
    assert err.splitlines()[1:] == ["progress"]
    assert err.startswith("$ spark-submit --master yarn --deploy-mode client")
    assert submitted(spark).endswith("train.py:train --grid lr=1 --metric accuracy --name one")


def test_a_job_here_that_a_signal_ends_has_its_code(spark: Path) -> None:
    behave(spark, "kill -9 $$")
    assert cli.main(["submit", "--quiet", "--pack", "none", *SWEEP]) == 137


def test_the_result_of_a_job_here_is_alone_on_stdout_as_json(spark: Path, tmp_path: Path, capfd: Capture) -> None:
    run = ScriptedRun(tmp_path / "runs", total=1).begin()
    run.add({"lr": 1})
    run.succeed(0, accuracy=0.5)
    run.end()
    behave(spark, "echo a table; exit 0")
    words = ["--dir", str(tmp_path / "runs"), "--name", "mnist", "--json"]
    assert cli.main(["submit", "--pack", "none", *SWEEP, *words]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["status"] == "succeeded"
    assert "a table" in err


def test_a_job_in_the_cluster_is_followed_and_ends_with_the_code_of_its_run(
    yarn: Yarn, spark: Path, tmp_path: Path, capfd: Capture
) -> None:
    def then() -> int:
        yarn.become("RUNNING")
        run = ScriptedRun(tmp_path / "runs", total=2).begin()
        run.add({"lr": 1}, {"lr": 2})
        run.succeed(0, accuracy=0.5)
        asked = len(yarn.asked)
        wait_until(lambda: len(yarn.asked) > asked + 3, 10.0, "the run was seen")
        run.fail(1)
        run.end()
        yarn.become("FINISHED", "FAILED", "Application was not heard of")
        return 1

    thread = after(yarn, spark, then)
    assert cli.main(in_cluster(tmp_path)) == 0
    thread.join()
    out, err = capfd.readouterr()
    assert f"{ID} is RUNNING on {yarn.address}" in err
    assert "mnist: " in err
    assert f"{ID} is FAILED" in err
    assert f"YARN reports FAILED for {ID}, and the run reports succeeded" in err
    assert out.startswith("mnist: succeeded. 2 trials, 1 failed")
    assert "--files train.py" in submitted(spark)


def test_a_driver_that_ends_before_its_run_is_reported_with_its_output(
    yarn: Yarn, spark: Path, tmp_path: Path, capfd: Capture
) -> None:
    yarn.printed = "error: no such function"

    def then() -> int:
        yarn.become("FINISHED", "FAILED", "User application exited with status 2")
        return 1

    thread = after(yarn, spark, then)
    assert cli.main(in_cluster(tmp_path)) == 2
    thread.join()
    out, err = capfd.readouterr()
    assert out == ""
    problem = f"error: the driver of {ID} exited with 2 before it ended a run\n"
    assert err.endswith(f"{problem}the end of what the driver printed:\nerror: no such function\n")


def test_the_output_of_a_driver_on_a_silent_node_is_where_yarn_keeps_it(
    yarn: Yarn, spark: Path, tmp_path: Path, capfd: Capture
) -> None:
    def then() -> int:
        yarn.become("KILLED", "KILLED", "killed by ann")
        yarn.application["amContainerLogs"] = ""
        return 1

    thread = after(yarn, spark, then)
    assert cli.main(in_cluster(tmp_path)) == 5
    thread.join()
    err = capfd.readouterr().err
    assert f"error: {ID} is KILLED: killed by ann; its driver has not ended the run\n" in err
    assert f"`yarn logs -applicationId {ID}`" in err


def test_a_refusal_of_spark_submit_is_shown(yarn: Yarn, spark: Path, tmp_path: Path, capfd: Capture) -> None:
    behave(spark, "echo java.lang.IllegalArgumentException: too much memory >&2; exit 1")
    assert cli.main(in_cluster(tmp_path)) == 2
    refusal = "error: spark-submit has submitted nothing: java.lang.IllegalArgumentException: too much memory\n"
    assert capfd.readouterr().err.endswith(refusal)


def test_a_spark_submit_that_submits_nothing_is_ended(
    yarn: Yarn, spark: Path, tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "follow", partial(follow.follow, submit_timeout_s=0.2))
    behave(spark, "exec sleep 600")
    assert cli.main(in_cluster(tmp_path)) == 5
    assert "has brought no application to YARN within 0.2 s" in capfd.readouterr().err


PODS = ("--conf", "spark.master=k8s://h", "--conf", "spark.kubernetes.file.upload.path=/up")


def test_a_job_in_a_pod_is_followed_by_what_spark_submit_prints(spark: Path, tmp_path: Path, capfd: Capture) -> None:
    run = ScriptedRun(tmp_path / "runs", total=2)
    behave(
        spark,
        f"cat {ANSWERS}/driver-fails.txt; touch {spark}/printed; while ! [ -e {spark}/ended ]; do sleep 0.02; done",
    )

    def then() -> None:
        wait_until((spark / "printed").exists, 10.0, "spark-submit has printed")
        run.begin()
        run.add({"lr": 1}, {"lr": 2})
        run.succeed(0, accuracy=0.5)
        run.fail(1)
        run.end()
        (spark / "ended").touch()

    thread = threading.Thread(target=then)
    thread.start()
    words = ["submit", "--deploy-mode", "cluster", *PODS, *SWEEP, "--dir", str(tmp_path / "runs"), "--name", "mnist"]
    assert cli.main(words) == 0
    thread.join()
    out, err = capfd.readouterr()
    assert out.startswith("mnist: succeeded. 2 trials, 1 failed")
    assert f"{POD} is Failed on node-b" in err
    assert f"Kubernetes reports Failed for {POD}, and the run reports succeeded" in err


def test_a_driver_that_ends_in_its_pod_before_its_run_has_its_code(spark: Path, tmp_path: Path, capfd: Capture) -> None:
    behave(spark, f"cat {ANSWERS}/driver-fails.txt")
    words = ["submit", "--deploy-mode", "cluster", *PODS, *SWEEP, "--dir", str(tmp_path / "runs"), "--name", "mnist"]
    assert cli.main(words) == 3
    err = capfd.readouterr().err
    assert f"error: the driver of {POD} exited with 3 before it ended a run\n`kubectl logs {POD} --names" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["swep"], "'swep' is no job: pass one of sweep, run, resume, extend, refit after the options of submit"),
        (["sweep"], "Missing argument 'TARGET'"),
        ([*SWEEP, "--lable", "gpu"], "No such option: --lable"),
        (["--conf", "spark.my.secret=1", *SWEEP], "would show a secret to all users of this machine"),
        (["--deploy-mode", "cluster", *SWEEP], "without --dir, the run directory is in the driver's container"),
        ([*PODS, "--pack", "auto", *SWEEP], "--pack auto is for YARN; the image of pods has their Python"),
        (["--deploy-mode", "local", *SWEEP], "--deploy-mode 'local' must be client or cluster"),
        (
            ["--packs", "/x", "--package", "no-such-package", "--dry-run", *SWEEP],
            "package no-such-package, wanted by --package, is not",
        ),
    ],
)
def test_a_wrong_call_submits_nothing(words: list[str], message: str, spark: Path, capfd: Capture) -> None:
    assert cli.main(["submit", *words]) == 2
    assert message in capfd.readouterr().err
    assert not (spark / "words").exists()


def test_the_help_of_a_job_is_that_of_its_command(capfd: Capture) -> None:
    assert cli.main(["submit", "run", "--help"]) == 0
    assert "--workers" in capfd.readouterr().out


def test_without_any_spark_the_next_step_is_named(
    tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert cli.main(["submit", "--pack", "none", *SWEEP]) == 2
    assert "there is no spark-submit on the path: set SPARK_HOME" in capfd.readouterr().err


def prune(folder: Path, answer: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """`sparktrain pack --prune`, by a user who answers."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    return cli.main(["pack", "--package", "msgspec", "--to", str(folder), "--prune"])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Contents:
    """What a pack holds here, in place of the whole Python of this process."""
    made = contents([[data_entry("bin/python", "#!", executable=True)]], [])
    monkeypatch.setattr(pack, "plan", lambda wanted: made)
    return made


@pytest.mark.usefixtures("small")
def test_old_packs_are_deleted_when_the_user_answers_yes(
    tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "sparktrain-python3.11-aaaaaaaaaaaaaaaa.tar.gz"
    old.write_bytes(bytes(1024))
    for answer in ("", "\n", "no\n"):
        assert prune(tmp_path, answer, monkeypatch) == 0
        message = capfd.readouterr()
        assert message.err.endswith(f"delete 1 pack, 1.0 KiB, in {tmp_path}? [y/N] nothing was deleted\n")
        assert message.err.startswith(f"{old.name}  1.0 KiB  ")
        assert old.exists()
    assert prune(tmp_path, "y\n", monkeypatch) == 0
    assert not old.exists()
    capfd.readouterr()
    assert prune(tmp_path, "", monkeypatch) == 0
    assert capfd.readouterr().err == f"no old packs in {tmp_path}\n"


def test_a_pack_is_made_once_and_its_url_printed(tmp_path: Path, capfd: Capture, small: Contents) -> None:
    assert cli.main(["pack", "--to", str(tmp_path / "packs")]) == 0
    first = capfd.readouterr()
    assert first.out == f"{tmp_path}/packs/{small.archive}\n"
    assert first.err.startswith("packed 0 packages, 2 bytes unpacked, to ")
    assert cli.main(["submit", "--dry-run", "--packs", str(tmp_path / "packs"), *SWEEP]) == 0
    assert f"--archives {first.out.strip()}#environment" in capfd.readouterr().out.replace("'", "")
    assert cli.main(["pack", "--to", str(tmp_path / "packs")]) == 0
    assert capfd.readouterr().err.startswith("nothing to upload, 0 packages, 2 bytes unpacked: ")
    assert set(commands._FUNCTIONS) == {"sweep", "run", "resume", "extend", "refit"}
