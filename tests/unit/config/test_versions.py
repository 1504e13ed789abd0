"""Versions that must match on driver and executors."""

from sparktrain.config.versions import COMPARED, installed_versions, mismatch

HERE = {"python": "3.11", "tensorflow": "2.21.0"}


def test_a_mismatch_names_versions_host_and_next_step() -> None:
    assert mismatch(HERE, HERE, "h") == ""
    assert mismatch(HERE, {"python": "3.11", "keras": "3.15"}, "h") == "", "what one side lacks is no difference"
    assert mismatch(HERE, {"python": "3.12", "tensorflow": "2.20.0"}, "h") == (
        "python is 3.11 on the driver and 3.12 on the executor; tensorflow is 2.21.0 on the driver and 2.20.0 on the "
        "executor (host h): name the same Python by PYSPARK_PYTHON on both, or install the same versions on both"
    )


def test_installed_versions_of_given_packages() -> None:
    assert set(installed_versions()) <= {"python", *COMPARED}
    assert set(installed_versions(("msgspec", "no-such-package"))) == {"python", "msgspec"}
