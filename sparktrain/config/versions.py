"""Versions that must be the same on the driver and on every executor."""

import sys
from collections.abc import Sequence
from importlib import metadata

COMPARED = ("sparktrain", "tensorflow", "keras")
"""Packages that are compared where both sides have them, beside Python's major and minor version."""

TOLD = (*COMPARED, "horovod")
"""Packages of which agents tell whether they have them."""


def installed_versions(packages: Sequence[str] = COMPARED) -> dict[str, str]:
    """Of Python and of each of the packages that this process could import; nothing is imported."""
    versions = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def differences(driver: dict[str, str], executor: dict[str, str]) -> list[str]:
    """One sentence part for each package whose versions differ; a package that one side lacks is no difference."""
    both = [name for name in driver if name in executor and driver[name] != executor[name]]
    return [f"{name} is {driver[name]} on the driver and {executor[name]} on the executor" for name in both]


def mismatch(driver: dict[str, str], executor: dict[str, str], host: str) -> str:
    """How the versions of an executor on `host` differ from the driver's, and what to do; empty when they do not."""
    different = differences(driver, executor)
    if not different:
        return ""
    step = (
        "name the same Python by PYSPARK_PYTHON on both, or " if driver.get("python") != executor.get("python") else ""
    )
    return f"{'; '.join(different)} (host {host}): {step}install the same versions on both"
