"""The files of conf/, for tests of several rings."""

from pathlib import Path
from xml.etree import ElementTree

CONF = Path(__file__).parents[1] / "conf"


def properties(name: str) -> dict[str, str]:
    """The properties that spark-submit reads from a file of conf/."""
    lines = (line.split(None, 1) for line in (CONF / name).read_text().splitlines() if line.startswith("spark."))
    return {key: value.strip() for key, value in lines}


def queues() -> dict[str, str]:
    """The properties that the ResourceManager reads from capacity-scheduler-gpu.xml."""
    found = ElementTree.parse(CONF / "capacity-scheduler-gpu.xml").getroot().findall("property")
    return {each.findtext("name", ""): each.findtext("value", "") for each in found}


def for_two_gpus(claims: Path) -> dict[str, str]:
    """Settings that fit yarn-gpu.conf to the small nodes of tests: their two GPUs are names alone, and executors claim
    them by files in the folder `claims`."""
    return {
        "spark.yarn.queue": "default",
        "spark.files": str(CONF / "gpu-discovery.sh"),
        "spark.task.cpus": "1",
        "spark.executor.memoryOverhead": "384m",
        "spark.driver.memoryOverhead": "384m",
        "spark.executorEnv.SPARKTRAIN_GPU_ADDRESSES": "0 1",
        "spark.executorEnv.SPARKTRAIN_GPU_CLAIMS": str(claims),
    }
