"""Which packages go into a pack: those that are wanted, what they require, and never Spark's own."""

from collections.abc import Mapping, Sequence
from importlib.metadata import Distribution
from typing import cast

import pytest

from sparktrain.driver.submitted_jobs.env_pack.packages import Installed, chosen, installed, normal
from sparktrain.errors import SpecError


class Package:
    def __init__(self, name: str, requires: Sequence[str]) -> None:
        self.metadata = {"Name": name}
        self.requires = requires


def there(packages: Mapping[str, Sequence[str]]) -> Installed:
    return {normal(name): cast(Distribution, Package(name, requires)) for name, requires in packages.items()}


THERE = there(
    {
        "sparktrain": ["pyspark[connect]>=4", "Msg_Spec>=0.19", "tensorflow>=2; extra == 'tensorflow'"],
        "msg-spec": ["colours; sys_platform == 'win32'"],
        "tensorflow": ["keras"],
        "keras": ["keras"],
        "pyspark": ["py4j"],
        "py4j": [],
        "tools": ["sparktrain[tensorflow]"],
    }
)


def names(wanted: Sequence[str]) -> list[str]:
    return [each.metadata["Name"] for each in chosen(THERE, wanted)]


def test_all_but_sparks_own_when_none_is_wanted() -> None:
    assert names([]) == ["keras", "msg-spec", "sparktrain", "tensorflow", "tools"]


def test_sparktrain_and_its_needs_come_along_in_any_case() -> None:
    assert names(["keras"]) == ["keras", "msg-spec", "sparktrain"]


@pytest.mark.parametrize("wanted", ["sparktrain[tensorflow]", "Tools"])
def test_an_extra_brings_what_it_requires_and_that_brings_more(wanted: str) -> None:
    assert set(names([wanted])) >= {"keras", "msg-spec", "sparktrain", "tensorflow"}


def test_what_is_not_there_is_named_with_the_command_that_brings_it() -> None:
    with pytest.raises(SpecError, match=r"wanted by --package, is not installed here: pip install 'torch>=2'"):
        names(["torch>=2"])
    broken = {name: package for name, package in THERE.items() if name != "keras"}
    with pytest.raises(SpecError, match="package keras, wanted by tensorflow, is not installed here"):
        chosen(broken, ["tensorflow"])


def test_what_is_no_requirement_is_refused() -> None:
    with pytest.raises(SpecError, match="is no package"):
        names(["a b"])


def test_what_is_installed_here_has_sparktrain_and_all_that_it_requires() -> None:
    found = {each.metadata["Name"].lower() for each in chosen(installed(), ["sparktrain"])}
    assert found >= {"sparktrain", "grpcio", "msgspec", "cloudpickle", "pyarrow"}
    assert not found & {"pyspark", "py4j", "tensorflow", "pytest"}
