"""What the application of a call has of the session's configuration."""

import pytest

from sparktrain.driver.clustered.application_settings import (
    properties_text,
    python_of_driver,
    settings_of_application,
)
from sparktrain.errors import SpecError

PACKED = {
    "spark.archives": "hdfs://nn/packs/env.tar.gz#environment",
    "spark.pyspark.python": "./environment/bin/python",
}


def test_the_driver_has_the_python_of_the_sessions_archive() -> None:
    settings = settings_of_application({**PACKED, "spark.pyspark.driver.python": "/home/ann/python"}, "big", {})
    names = ("spark.pyspark.python", "spark.pyspark.driver.python", "spark.yarn.appMasterEnv.PYSPARK_PYTHON")
    assert {settings[name] for name in names} == {"./environment/bin/python"}
    assert settings["spark.archives"] == PACKED["spark.archives"]


@pytest.mark.parametrize("archives", ["hdfs:///env.tar.gz#a,hdfs:///other.zip#e", "hdfs:///a.zip, hdfs:///e"])
def test_an_archive_is_known_by_its_name_in_the_container(archives: str) -> None:
    assert (
        python_of_driver({"spark.yarn.dist.archives": archives}, {"PYSPARK_PYTHON": "e/bin/python"}) == "e/bin/python"
    )


def test_the_python_that_the_session_names_for_its_master_comes_first() -> None:
    settings = settings_of_application(
        {**PACKED, "spark.yarn.appMasterEnv.PYSPARK_PYTHON": "/opt/python"},
        "big",
        {"PYSPARK_PYTHON": "/usr/bin/python"},
    )
    assert settings["spark.pyspark.driver.python"] == "/opt/python"
    assert settings["spark.pyspark.python"] == "./environment/bin/python"


@pytest.mark.parametrize(
    "settings",
    [{}, {"spark.pyspark.python": "/usr/bin/python3"}, {**PACKED, "spark.pyspark.python": "other/bin/python"}],
)
def test_a_session_without_a_python_for_containers_is_refused(settings: dict[str, str]) -> None:
    with pytest.raises(SpecError, match=r"`sparktrain pack` prints the URL .* spark.archives=URL#environment"):
        python_of_driver(settings, {"PYSPARK_PYTHON": "/home/ann/.venv/bin/python"})


def test_the_driver_logs_in_as_the_session_does() -> None:
    login = {"spark.kerberos.principal": "ann@LAB.TEST", "spark.kerberos.keytab": "/home/ann/ann.keytab"}
    filesystems = {"spark.kerberos.access.hadoopFileSystems": "hdfs://other"}
    settings = settings_of_application({**PACKED, **login, **filesystems}, "big", {})
    assert login.items() | filesystems.items() <= settings.items()


def test_what_belongs_to_the_sessions_own_driver_stays_with_it() -> None:
    own = {
        "spark.master": "yarn",
        "spark.submit.deployMode": "client",
        "spark.app.id": "application_1_0001",
        "spark.driver.host": "laptop",
        "spark.driver.port": "4040",
        "spark.yarn.tags": "mine",
        "spark.sparktrain.driver.port": "7000",
        "spark.sql.warehouse.dir": "file:/home/ann/warehouse",
    }
    users = {"spark.executor.instances": "4", "spark.yarn.queue": "ml", "spark.authenticate.secret": "abc"}
    settings = settings_of_application({**PACKED, **own, **users}, "big", {})
    assert not set(own) & set(settings)
    assert users.items() <= settings.items()
    assert settings["spark.app.name"] == "sparktrain big"


def test_java_reads_each_value_as_it_was() -> None:
    text = properties_text({"spark.a": "C:\\x y\n# z = 1", "b:c": "  lead"})
    assert text == "spark.a=C:\\\\x\\ y\\n#\\ z\\ =\\ 1\nb\\:c=\\ \\ lead\n"
