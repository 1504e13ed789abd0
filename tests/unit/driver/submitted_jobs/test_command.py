"""The words of the line: what a user would write for spark-submit, in each mode."""

from pathlib import Path

import msgspec
import pytest

from sparktrain.driver.submitted_jobs.command import (
    ClusterPlacement,
    Job,
    Mode,
    check_open,
    check_shared,
    file_of_target,
    line_of,
    properties_in,
    settings_of,
    shipped,
)
from sparktrain.driver.submitted_jobs.job import PROGRAMS, JobRequest, job_of, program
from sparktrain.errors import SpecError

PACK = "hdfs://nn/packs/one.tar.gz"
WORDS = ("train.py:train", "--grid", "lr=0.1,0.01")
SWEEP = {
    "function": "code/train.py:train",
    "dir": "hdfs:///runs",
    "name": "one",
    "params": None,
    "conf": None,
    "py_files": None,
}


def confs(line: list[str]) -> dict[str, str]:
    """What follows each --conf before the program."""
    pairs = (line[at + 1].partition("=") for at, word in enumerate(line) if word == "--conf")
    return {key: value for key, _, value in pairs}


def test_the_least_line_has_master_mode_program_and_arguments() -> None:
    line = line_of(Job(program="jobs/grid_search.py", words=WORDS))
    assert line == ["spark-submit", "--master", "yarn", "--deploy-mode", "client", "jobs/grid_search.py", *WORDS]


def test_each_wish_has_its_own_option() -> None:
    place = ClusterPlacement(mode=Mode.CLUSTER, queue="ml", label="gpu", executors=4, cores=2, memory="4g")
    job = Job(
        program="p.py",
        words=(),
        place=place,
        conf={"spark.a": "b c"},
        properties_file="one.conf",
        properties={},
        files=("a.py", "b.yaml"),
        py_files=("c.zip",),
        tag="t",
    )
    assert line_of(job, "/spark/bin/spark-submit") == [
        *("/spark/bin/spark-submit", "--master", "yarn", "--deploy-mode", "cluster", "--properties-file", "one.conf"),
        *("--queue", "ml", "--num-executors", "4", "--executor-cores", "2", "--executor-memory", "4g"),
        *("--files", "a.py,b.yaml", "--py-files", "c.zip", "--conf", "spark.yarn.executor.nodeLabelExpression=gpu"),
        *("--conf", "spark.a=b c", "--conf", "spark.yarn.tags=t", "p.py"),
    ]


def test_a_driver_here_keeps_its_python_and_executors_have_that_of_the_pack() -> None:
    line = line_of(Job(program="p.py", words=(), archive=PACK, python="/venv/bin/python"))
    assert line[line.index("--archives") + 1] == f"{PACK}#environment"
    assert confs(line) == {
        "spark.pyspark.python": "./environment/bin/python",
        "spark.pyspark.driver.python": "/venv/bin/python",
    }


def test_a_driver_in_a_container_has_the_python_of_the_pack() -> None:
    line = line_of(Job(program="p.py", words=(), place=ClusterPlacement(mode=Mode.CLUSTER), archive=PACK))
    assert confs(line) == {
        "spark.pyspark.python": "./environment/bin/python",
        "spark.pyspark.driver.python": "./environment/bin/python",
        "spark.yarn.appMasterEnv.PYSPARK_PYTHON": "./environment/bin/python",
    }


def test_a_setting_of_the_user_prevails_and_his_tags_stay() -> None:
    job = Job(program="p.py", words=(), conf={"spark.pyspark.python": "mine"}, archive=PACK, tag="ours")
    assert confs(line_of(job))["spark.pyspark.python"] == "mine"
    tagged = Job(
        program="p.py", words=(), conf={"spark.yarn.tags": "his"}, properties={"spark.yarn.tags": "filed"}, tag="ours"
    )
    assert confs(line_of(tagged))["spark.yarn.tags"] == "his,ours"
    filed = Job(program="p.py", words=(), properties={"spark.yarn.tags": "filed"}, tag="ours")
    assert confs(line_of(filed))["spark.yarn.tags"] == "filed,ours"


def test_what_the_user_has_listed_elsewhere_stays_beside_an_option_that_prevails() -> None:
    properties = {
        "spark.files": "conf/gpu-discovery.sh",
        "spark.archives": "hdfs:///a.zip#a",
        "spark.submit.pyFiles": "x.py",
    }
    filed = Job(
        program="p.py", words=(), properties=properties, files=("train.py",), archive=PACK, py_files=("x.py", "y.py")
    )
    line = line_of(filed)
    assert line[line.index("--files") + 1] == "conf/gpu-discovery.sh,train.py"
    assert line[line.index("--archives") + 1] == f"hdfs:///a.zip#a,{PACK}#environment"
    assert line[line.index("--py-files") + 1] == "x.py,y.py"
    assert not {"--files", "--archives", "--py-files"} & set(
        line_of(Job(program="p.py", words=(), properties=properties))
    )
    given = Job(program="p.py", words=(), conf={"spark.files": "a, b"}, properties=properties, files=("b",))
    assert "a,b" in line_of(given)


def test_what_is_checked_before_is_what_the_line_will_set() -> None:
    properties = {"spark.yarn.queue": "filed", "spark.executor.memory": "8g"}
    job = Job(
        program="p.py",
        words=(),
        place=ClusterPlacement(queue="ml", label="gpu"),
        conf={"spark.x": "y"},
        properties_file="one.conf",
        properties=properties,
    )
    assert settings_of(job) == {
        "spark.yarn.queue": "ml",
        "spark.executor.memory": "8g",
        "spark.yarn.executor.nodeLabelExpression": "gpu",
        "spark.x": "y",
    }


@pytest.mark.parametrize(
    "key", ["spark.hadoop.fs.s3a.secret.key", "spark.my.PASSWORD", "spark.x.token", "fs.azure.account.key.a"]
)
def test_a_secret_does_not_get_onto_the_line(key: str) -> None:
    with pytest.raises(SpecError, match="--properties-file"):
        check_open([key], "--conf")


def test_other_settings_do() -> None:
    check_open(["spark.executor.memory", "spark.sql.shuffle.partitions"], "--conf")
    assert not properties_in("")


def test_properties_are_read_as_spark_reads_them() -> None:
    text = "# spark.no 1\n\nspark.a  1 2\nspark.b=x=y\n  spark.c = z \n! spark.no 2\nspark.d:e\n"
    assert properties_in(text) == {"spark.a": "1 2", "spark.b": "x=y", "spark.c": "z", "spark.d": "e"}


def test_files_of_arguments_are_named_as_the_driver_finds_them() -> None:
    moved = shipped(
        ["code/train.py:train", "--params", "conf/a.yaml", "--params=conf/a.yaml", "--x=1"],
        ["code/train.py", "conf/a.yaml"],
    )
    assert moved.words == ("train.py:train", "--params", "a.yaml", "--params=a.yaml", "--x=1")
    assert moved.files == ("code/train.py", "conf/a.yaml")


def test_two_files_of_one_name_are_refused() -> None:
    with pytest.raises(SpecError, match=r"b/train.py, a/train.py cannot go to one driver"):
        shipped([], ["a/train.py", "b/train.py"])
    assert shipped([], ["a/train.py", "a/train.py"]).files == ("a/train.py",)


@pytest.mark.parametrize(("target", "file"), [("a/b.py:f", "a/b.py"), ("package.module:f", None), ("b.py", None)])
def test_the_file_of_a_target(target: str, file: str | None) -> None:
    assert file_of_target(target) == file


@pytest.mark.parametrize("directory", [None, "runs", "./runs", "~/runs"])
def test_a_directory_of_the_container_is_refused(directory: str | None) -> None:
    with pytest.raises(SpecError, match="cluster mode"):
        check_shared(directory)


@pytest.mark.parametrize("directory", ["/shared/runs", "hdfs:///runs", "s3://bucket/runs"])
def test_a_directory_that_outlives_the_container_is_taken(directory: str) -> None:
    assert check_shared(directory) is None


# ---- from what is asked for


def asked(kind: str = "sweep", words: tuple[str, ...] = ("code/train.py:train",), mode: str = "cluster") -> JobRequest:
    return JobRequest(kind=kind, words=words, place={"mode": mode, "queue": None})


def test_a_job_in_the_cluster_takes_its_files_along() -> None:
    job, directory = job_of(asked(), {**SWEEP, "py_files": "lib/help.py,hdfs:///x.zip"})
    assert job.files == ("code/train.py", "lib/help.py")
    assert job.words == ("train.py:train",)
    assert directory == "hdfs:///runs/one"
    assert job.tag.startswith("sparktrain-")


def beside(folder: Path, **sources: str) -> dict[str, object]:
    """Arguments with a training file in a folder of these modules, and of packages where their text is empty."""
    for name, text in sources.items():
        path = folder / name / "__init__.py" if not text else folder / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return {**SWEEP, "function": f"{folder}/train.py:train"}


def test_modules_beside_the_training_file_come_along_with_those_that_they_import(tmp_path: Path) -> None:
    one, two = "import two, json, numpy\n", "from one import x\n"
    arguments = beside(tmp_path, train="import one\n", one=one, two=two, other="pass\n", json="pass\n")
    job, _ = job_of(
        JobRequest(kind="sweep", words=(), place={"mode": "cluster"}, py_files=(f"{tmp_path}/one.py",)), arguments
    )
    assert job.py_files == (f"{tmp_path}/one.py", f"{tmp_path}/two.py")
    here, _ = job_of(asked(mode="client"), arguments)
    assert here.py_files == ()


def test_a_package_beside_the_training_file_must_be_brought(tmp_path: Path) -> None:
    arguments = beside(tmp_path, train="import tools.inner\n", tools="")
    with pytest.raises(SpecError, match=f"pass --py-files {tmp_path}/tools.zip"):
        job_of(asked(), arguments)
    job, _ = job_of(JobRequest(kind="sweep", words=(), place={"mode": "cluster"}, py_files=("tools.zip",)), arguments)
    assert job.py_files == ("tools.zip",)


def test_a_package_that_the_driver_has_by_an_option_is_left(tmp_path: Path) -> None:
    arguments = beside(tmp_path, train="from tensorflowonspark import dfutil\n", tensorflowonspark="")
    with pytest.raises(SpecError, match=r"train\.py imports tensorflowonspark, a package beside it"):
        job_of(asked(), arguments)
    job, _ = job_of(asked(), {**arguments, "tensorflowonspark": True})
    assert job.py_files == ()


def test_a_job_here_finds_its_files_where_they_are() -> None:
    job, directory = job_of(asked(mode="client"), {**SWEEP, "dir": None})
    assert job.files == ()
    assert job.words == ("code/train.py:train",)
    assert directory == "sparktrain-runs/one"


def test_a_run_without_a_name_gets_one_by_which_it_is_found() -> None:
    job, directory = job_of(asked(), {**SWEEP, "name": None})
    assert job.words[:2] == ("train.py:train", "--name")
    assert job.words[2].startswith("train-")
    assert directory == f"hdfs:///runs/{job.words[2]}"
    again, _ = job_of(asked(), {**SWEEP, "name": None})
    assert again.words[2] != job.words[2]  # within one second, and its job would take the run for one to resume


def test_directory_and_name_may_be_in_the_file_of_parameters(tmp_path: Path) -> None:
    params = tmp_path / "sweep.yaml"
    params.write_text("grid: {lr: [0.1]}\ndir: hdfs:///filed\nname: two\n")
    words = ("code/train.py:train", "--params", str(params))
    job, directory = job_of(asked(words=words), {**SWEEP, "dir": None, "name": None, "params": str(params)})
    assert directory == "hdfs:///filed/two"
    assert job.words == ("train.py:train", "--params", "sweep.yaml")
    assert job.files == ("code/train.py", str(params))


def test_directory_and_name_may_be_in_the_file_of_a_run(tmp_path: Path) -> None:
    params = tmp_path / "gang.yaml"
    params.write_text("workers: 2\ndir: hdfs:///filed\nname: big\n")
    arguments = {**SWEEP, "dir": None, "name": None, "params": str(params)}
    job, directory = job_of(asked("run", ("code/train.py:train", "--params", str(params))), arguments)
    assert directory == "hdfs:///filed/big"
    assert job.words == ("train.py:train", "--params", "gang.yaml")


def test_the_mode_may_be_in_the_properties(tmp_path: Path) -> None:
    properties = tmp_path / "yarn.conf"
    properties.write_text("spark.submit.deployMode  cluster\n")
    filed = JobRequest(kind="sweep", words=(), place={"mode": None}, properties_file=str(properties))
    assert job_of(filed, SWEEP)[0].place.mode is Mode.CLUSTER
    given = JobRequest(
        kind="sweep",
        words=(),
        place={"mode": None},
        conf={"spark.submit.deployMode": "client"},
        properties_file=str(properties),
    )
    assert job_of(given, SWEEP)[0].place.mode is Mode.CLIENT
    assert job_of(JobRequest(kind="sweep", words=(), place={"mode": None}), SWEEP)[0].place.mode is Mode.CLIENT


@pytest.mark.parametrize("kind", ["resume", "extend"])
def test_a_run_that_continues_has_its_directory(kind: str) -> None:
    words = ("hdfs:///runs/one",)
    job, directory = job_of(asked(kind, words), {"directory": words[0], "conf": None, "py_files": None})
    assert (job.words, directory) == (words, words[0])
    with pytest.raises(SpecError, match="the run directory runs/one is in the driver's container"):
        job_of(asked(kind, ("runs/one",)), {"directory": "runs/one", "conf": None, "py_files": None})


def test_a_refit_is_a_run_beside_its_sweep_with_a_name_by_which_it_is_found() -> None:
    arguments = {"directory": "hdfs:///runs/one/", "dir": None, "name": None, "conf": None, "py_files": None}
    words = ("hdfs:///runs/one/", "--workers", "2")
    job, directory = job_of(asked("refit", words), arguments)
    assert job.words[:4] == (*words, "--name")
    assert job.words[4].startswith("one-")
    assert directory == f"hdfs:///runs/{job.words[4]}"
    there = {**arguments, "dir": "hdfs:///final", "name": "best"}
    named, directory = job_of(asked("refit", words), there)
    assert (named.words, directory) == (words, "hdfs:///final/best")
    for wrong in ({"directory": "runs/one"}, {"dir": "runs"}):
        with pytest.raises(SpecError, match="is in the driver's container in cluster mode"):
            job_of(asked("refit", words), {**arguments, **wrong})
    here, directory = job_of(asked("refit", ("one",), "client"), {**arguments, "directory": "one", "name": "two"})
    assert (here.words, directory) == (("one",), "./two")


def test_a_secret_in_the_jobs_own_arguments_is_refused_too() -> None:
    with pytest.raises(SpecError, match=r"--conf of sweep spark.the.password"):
        job_of(asked(), {**SWEEP, "conf": ["spark.the.password=x"]})


def test_a_mode_and_a_file_that_are_not_there_are_refused() -> None:
    with pytest.raises(SpecError, match="must be client or cluster"):
        job_of(asked(mode="local"), SWEEP)
    with pytest.raises(SpecError, match=r"--properties-file /no/such.conf cannot be read"):
        job_of(JobRequest(kind="sweep", words=(), place={"mode": "client"}, properties_file="/no/such.conf"), SWEEP)


@pytest.mark.parametrize("kind", PROGRAMS)
def test_the_program_is_the_job_that_a_user_would_name(kind: str) -> None:
    assert program(kind).is_file()
    assert program(kind).parent.name == "jobs"


# ---- on Kubernetes

PODS = "k8s://https://kubernetes.example.com:6443"


def asked_of_pods(mode: str = "cluster", **more: object) -> JobRequest:
    conf = {"spark.master": PODS, "spark.kubernetes.file.upload.path": "hdfs:///uploads"}
    place = {"mode": mode, "queue": None, "label": None, **more}
    return JobRequest(kind="sweep", words=("code/train.py:train",), place=place, conf=conf)


def test_a_driver_in_a_pod_gets_its_files_and_is_waited_for() -> None:
    job, _ = job_of(asked_of_pods(label="accelerator=gpu"), SWEEP)
    line = line_of(job)
    assert line[:5] == ["spark-submit", "--master", PODS, "--deploy-mode", "cluster"]
    assert line[line.index("--files") + 1] == "code/train.py"
    assert confs(line) == {
        "spark.master": PODS,
        "spark.kubernetes.file.upload.path": "hdfs:///uploads",
        "spark.kubernetes.executor.node.selector.accelerator": "gpu",
        "spark.kubernetes.submission.waitAppCompletion": "true",
    }
    assert job.words == ("train.py:train",)


def test_a_driver_here_with_executors_in_pods_has_this_python() -> None:
    job, _ = job_of(asked_of_pods("client"), SWEEP)
    assert confs(line_of(job))["spark.pyspark.driver.python"] == job.python
    filed = msgspec.structs.replace(job, properties={"spark.pyspark.driver.python": "mine"})
    assert "spark.pyspark.driver.python" not in confs(line_of(filed))


def test_files_without_a_way_to_the_pod_are_refused_with_the_next_step() -> None:
    request = JobRequest(kind="sweep", words=("code/train.py:train",), place={"mode": "cluster", "master": PODS})
    with pytest.raises(
        SpecError, match=r"grid_search\.py, train\.py must reach the driver's pod: pass --conf spark\.k"
    ):
        job_of(request, SWEEP)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({"queue": "ml"}, "--queue ml is for YARN alone"),
        ({"label": "gpu"}, "--label gpu must be KEY=VALUE on Kubernetes"),
        ({"master": "spark://host:7077"}, "--master spark://host:7077 is neither yarn nor k8s://URL"),
    ],
)
def test_options_that_the_cluster_does_not_have_are_refused(place: dict[str, str], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        job_of(asked_of_pods(**place), SWEEP)


def test_the_place_of_a_secret_may_be_on_the_line() -> None:
    check_open(
        [
            "spark.kubernetes.authenticate.submission.oauthTokenFile",
            "spark.kubernetes.driver.secretKeyRef.AWS_SECRET_ACCESS_KEY",
            "spark.kubernetes.executor.secrets.spark-secret",
            "spark.kubernetes.container.image.pullSecrets",
        ],
        "--conf",
    )
    with pytest.raises(SpecError, match="--properties-file"):
        check_open(["spark.kubernetes.authenticate.submission.oauthToken"], "--conf")
