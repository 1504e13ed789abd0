"""The files of conf/, for tests of several rings."""

from pathlib import Path
from xml.etree import ElementTree

CONF = Path(__file__).parents[1] / "conf"


def properties(name: str) -> dict[str, str]:
    """What spark-submit reads from such a file."""
    lines = (line.split(None, 1) for line in (CONF / name).read_text().splitlines() if line.startswith("spark."))
    return {key: value.strip() for key, value in lines}


def queues() -> dict[str, str]:
    """What the ResourceManager reads from capacity-scheduler-gpu.xml."""
    found = ElementTree.parse(CONF / "capacity-scheduler-gpu.xml").getroot().findall("property")
    return {each.findtext("name", ""): each.findtext("value", "") for each in found}
