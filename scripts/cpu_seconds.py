"""The processor time of rings and files of tests, with all processes that they start, from pytest's reports.

make test ARGS=--junitxml=report.xml
python -m scripts.cpu_seconds report.xml            seconds of a core, by ring and for the files that take most
python -m scripts.cpu_seconds before.xml after.xml  of both, for the files that both have
"""

import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence

PROPERTY = "cpu_s"
"""A property that tests/conftest.py gives the last test of each file."""
SHOWN = 40


def seconds_in(report: str) -> Counter[str]:
    """Seconds of a core by file, from the text of a report."""
    seconds: Counter[str] = Counter()
    for case in ET.fromstring(report).iter("testcase"):
        for value in case.iterfind(f".//property[@name='{PROPERTY}']"):
            folder, _, name = case.get("classname", "").removeprefix("tests.").partition(".test_")
            seconds[f"{folder.replace('.', '/')}/{name.partition('.')[0]}"] += float(value.get("value", 0))
    return seconds


def table(reports: Sequence[Counter[str]]) -> list[str]:
    """Lines with the seconds of each report: all tests, then rings, then files, those first that take most."""
    files = set.intersection(*map(set, reports))
    columns = [Counter({name: seconds for name, seconds in report.items() if name in files}) for report in reports]
    for column in columns:
        for name in files:
            column[name.partition("/")[0]] += column[name]
        column["all"] = sum(column[name] for name in files)
    names = sorted(columns[0], key=lambda name: ("/" in name, name != "all", -columns[0][name]))
    shown = [name for name in names if "/" not in name] + [name for name in names if "/" in name][:SHOWN]
    return ["".join(f"{column[name]:9.1f}" for column in columns) + f"  {name}" for name in shown]


if __name__ == "__main__":
    texts = [open(path, encoding="utf-8").read() for path in sys.argv[1:]]  # noqa: SIM115 - the process ends
    print("\n".join(table([seconds_in(text) for text in texts])))
