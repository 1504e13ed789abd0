"""Which of the installed packages go into a pack. Pure, except for `installed`."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import Distribution, distributions

from packaging.requirements import InvalidRequirement, Requirement

from sparktrain.errors import SpecError

LEFT_OUT = frozenset({"pyspark", "py4j"})
"""Packages that Spark itself sends to each container."""

Installed = Mapping[str, Distribution]
"""Distributions by their normalized names."""


def installed() -> Installed:
    """All distributions that this process can import; of several with one name, the first."""
    packages: dict[str, Distribution] = {}
    for distribution in distributions():
        if distribution.metadata["Name"]:  # what a broken removal has left has none
            packages.setdefault(normal(distribution.metadata["Name"]), distribution)
    return packages


def chosen(packages: Installed, requirements: Sequence[str]) -> list[Distribution]:
    """The packages of `requirements`, such as `sparktrain[hdfs]`, and all they require; without them, all packages.

    By name, and never those of `LEFT_OUT`. Raises SpecError for a package that is no requirement, or not installed.
    """
    # Spark's Python workers convert rows by pandas, where the driver has it.
    own_requirement = "sparktrain[spark]" if "pandas" in packages else "sparktrain"
    names = _closure(packages, [*requirements, own_requirement]) if requirements else set(packages)
    return [packages[name] for name in sorted(names - LEFT_OUT)]


def normal(name: str) -> str:
    """The normalized name of a package."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _closure(packages: Installed, requirements: Iterable[str]) -> set[str]:
    closure: set[tuple[str, str]] = set()
    waiting = [(_requirement(text), "--package") for text in requirements]
    while waiting:
        requirement, by = waiting.pop()
        name = normal(requirement.name)
        if name in LEFT_OUT:
            continue
        if name not in packages:
            raise SpecError(
                f"package {requirement.name}, wanted by {by}, is not installed here: pip install '{requirement}'"
            )
        fresh = {(name, extra) for extra in ("", *map(normal, requirement.extras))} - closure
        closure |= fresh
        for _, extra in fresh:
            waiting += [(dependency, name) for dependency in _required(packages[name], extra)]
    return {name for name, _ in closure}


def _required(package: Distribution, extra: str) -> Iterator[Requirement]:
    """The requirements of `package` on this machine, or those of one of its extras."""
    for text in package.requires or ():
        requirement = Requirement(text)
        # What holds without the extra comes with the package itself.
        marker = requirement.marker
        needed = marker.evaluate({"extra": extra}) if marker is not None else not extra
        if needed:
            yield requirement


def _requirement(text: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        raise SpecError(
            f"--package {text!r} is no package: write a name, such as scikit-learn, or name[extra]"
        ) from error
