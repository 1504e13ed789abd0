"""Versions that must be the same on the driver and on every executor."""

import sys
from collections.abc import Sequence

COMPARED = ("sparktrain", "tensorflow", "keras")
"""Packages with versions that must match where both sides have them, like Python's major and minor version."""

REPORTED = (*COMPARED, "horovod", "torch", "jax")
"""Packages that agents report."""


def installed_versions(packages: Sequence[str] = COMPARED) -> dict[str, str]:
    """Versions of Python and of the installed packages among `packages`; imports nothing."""
    from importlib import metadata  # most looks at a run ask for no version, and it brings the parser of e-mail

    versions = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def differences(driver: dict[str, str], executor: dict[str, str]) -> list[str]:
    """One clause for each package with different versions; a package that one side lacks does not count."""
    packages = [name for name in driver if name in executor and driver[name] != executor[name]]
    return [f"{name} is {driver[name]} on the driver and {executor[name]} on the executor" for name in packages]


def mismatch(driver: dict[str, str], executor: dict[str, str], host: str) -> str:
    """How the versions of an executor on `host` differ from the driver's, and the next step; empty when they match."""
    different = differences(driver, executor)
    if not different:
        return ""
    step = (
        "name the same Python by PYSPARK_PYTHON on both, or " if driver.get("python") != executor.get("python") else ""
    )
    return f"{'; '.join(different)} (host {host}): {step}install the same versions on both"
