"""Versions that must be the same on the driver and on every executor."""

import sys
from importlib import metadata

COMPARED = ("sparktrain", "tensorflow", "keras")
"""Packages that are compared where both sides have them, beside Python's major and minor version."""


def installed_versions() -> dict[str, str]:
    """Of Python and of each compared package that this process could import; nothing is imported."""
    versions = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for package in COMPARED:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def differences(driver: dict[str, str], executor: dict[str, str]) -> list[str]:
    """One sentence part for each package whose versions differ; a package that one side lacks is no difference."""
    both = [name for name in driver if name in executor and driver[name] != executor[name]]
    return [f"{name} is {driver[name]} on the driver and {executor[name]} on the executor" for name in both]
