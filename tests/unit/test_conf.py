"""The files of conf/: each is valid, and explains every key with its effect and its default."""

import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from sparktrain.cluster.spark_facts import Facts, slots
from sparktrain.cluster.yarn_capacity import demand_of
from sparktrain.config.param_files.load import load_gang, load_params
from sparktrain.errors import SpecError
from sparktrain.executor.spark_task import NODE_KEY
from sparktrain.training.data.open_data import STORAGE_KEY
from tests.conf import CONF, properties

SPARK_FILES = sorted(path.name for path in CONF.glob("*.conf"))
YAML_FILES = sorted(path.name for path in CONF.glob("*.yaml"))
TOP_LEVEL = re.compile(r"([a-z_]+):")


def uncommented(path: Path, is_key: re.Pattern[str]) -> list[str]:
    """Lines with a key that lack a comment with a default above them."""
    found, comment = [], ""
    for line in path.read_text().splitlines():
        if line.lstrip().startswith("#"):
            comment = f"{comment} {line.lstrip()[1:].strip()}"
            continue
        if is_key.match(line) and not re.search(r"Default: |Needed", comment):
            found.append(line)
        comment = ""
    return found


def test_the_folder_has_the_expected_files() -> None:
    assert SPARK_FILES == ["k8s.conf", "local.conf", "yarn-cpu.conf", "yarn-gpu.conf"]
    assert YAML_FILES == ["gang.yaml", "sweep.yaml"]


@pytest.mark.parametrize("name", SPARK_FILES)
def test_every_property_of_spark_is_explained(name: str) -> None:
    assert uncommented(CONF / name, re.compile(r"spark\.")) == []
    assert len(properties(name)) == len(re.findall(r"^spark\.", (CONF / name).read_text(), re.MULTILINE))


@pytest.mark.parametrize("role", ["driver", "executor"])
def test_the_templates_of_pods_name_the_containers_of_spark_and_give_no_rights(role: str) -> None:
    path = CONF / "kubernetes" / f"{role}.yaml"
    assert properties("k8s.conf")[f"spark.kubernetes.{role}.podTemplateFile"] == f"conf/kubernetes/{path.name}"
    spec = yaml.safe_load(path.read_text())["spec"]
    [container] = spec["containers"]
    assert container["name"] == f"spark-kubernetes-{role}"
    assert (spec["securityContext"]["runAsNonRoot"], container["securityContext"]["capabilities"]) == (
        True,
        {"drop": ["ALL"]},
    )
    assert uncommented(path, re.compile(r"  (?!containers|volumes)[a-zA-Z]+:|  - name: shared-memory")) == []


@pytest.mark.parametrize("role", ["driver", "executor"])
def test_an_application_of_the_operator_has_the_same_pods_and_settings(role: str) -> None:
    path = CONF / "kubernetes" / "spark-application.yaml"
    spec = yaml.safe_load(path.read_text())["spec"]
    template = yaml.safe_load((CONF / "kubernetes" / f"{role}.yaml").read_text())
    assert spec[role]["template"] == {"spec": template["spec"]}
    of_submit = properties("k8s.conf")
    assert {key: of_submit.get(key) for key in spec["sparkConf"]} == spec["sparkConf"]
    assert (str(spec["executor"]["instances"]), spec["executor"]["memoryOverhead"]) == (
        of_submit["spark.executor.instances"],
        of_submit["spark.executor.memoryOverhead"],
    )
    assert uncommented(path, re.compile(r"  [a-zA-Z]+:")) == ["  name: training"]


def test_the_grace_period_of_executors_is_where_spark_reads_it() -> None:
    assert properties("k8s.conf")["spark.kubernetes.executor.terminationGracePeriodSeconds"] == "120s"
    assert "terminationGracePeriodSeconds" not in (CONF / "kubernetes" / "executor.yaml").read_text()


def test_agents_learn_their_node_and_their_storage_from_the_template_of_executors() -> None:
    [container] = yaml.safe_load((CONF / "kubernetes" / "executor.yaml").read_text())["spec"]["containers"]
    assert container["env"] == [
        {"name": NODE_KEY, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": STORAGE_KEY, "valueFrom": {"resourceFieldRef": {"resource": "limits.ephemeral-storage"}}},
    ]


@pytest.mark.parametrize("name", YAML_FILES)
def test_every_key_of_a_parameter_file_is_explained(name: str) -> None:
    assert uncommented(CONF / name, TOP_LEVEL) == []


def test_every_property_of_the_scheduler_is_explained() -> None:
    found = ElementTree.parse(CONF / "capacity-scheduler-gpu.xml").getroot().findall("property")
    assert len(found) > 10
    for each in found:
        assert re.search(r"Default: |Needed", each.findtext("description", "")), each.findtext("name")


def test_the_sweep_shows_every_option_that_such_a_file_may_have(tmp_path: Path) -> None:
    file = load_params(CONF / "sweep.yaml")
    assert (file.kind, file.values) == ("grid", {"learning_rate": [0.1, 0.01], "dropout": [0.2, 0.5]})
    assert {"grid", "zip", "cases", "space", *file.settings} == allowed(load_params, tmp_path)


def test_the_gang_shows_every_option_that_such_a_file_may_have(tmp_path: Path) -> None:
    file = load_gang(CONF / "gang.yaml")
    assert file.params == {"learning_rate": 0.01, "dropout": 0.2}
    assert {"params", *file.settings} == allowed(load_gang, tmp_path)


def allowed(load: Callable[[Path], object], folder: Path) -> set[str]:
    """The known keys, from the error of the file reader."""
    wrong = folder / "wrong.yaml"
    wrong.write_text("qqq: 1\n")
    with pytest.raises(SpecError) as refused:
        load(wrong)
    return set(str(refused.value).partition("allowed: ")[2].split(", "))


@pytest.mark.parametrize("name", ["yarn-gpu.conf", "k8s.conf"])
def test_with_gpus_each_executor_is_one_agent_with_a_gpu(name: str) -> None:
    conf = properties(name)
    assert slots(Facts(conf["spark.master"], conf, cores=64)) == 4


def test_on_yarn_gpus_are_requested_on_labelled_nodes() -> None:
    demand = demand_of(properties("yarn-gpu.conf"))
    assert demand.amounts == {"memory-mb": 16384, "vcores": 4, "yarn.io/gpu": 1}
    assert (demand.queue, demand.label) == ("gpu", "gpu")
    assert demand_of(properties("yarn-cpu.conf")).label is None
    assert slots(Facts("yarn", properties("yarn-cpu.conf"), cores=64)) == 8


def test_a_sample_that_is_used_as_it_is_averages_gradients() -> None:
    for found in (load_params(CONF / "sweep.yaml").settings, load_gang(CONF / "gang.yaml").settings):
        assert "local_steps" in found
        assert found["local_steps"] is None
