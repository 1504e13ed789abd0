"""`--local` in the command line: no session, and refused beside what is Spark's."""

import pytest

from sparktrain import cli
from tests.unit.cli.edge import RESULT, Edge

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    "words", [["sweep", "TARGET", "--grid", "lr=1"], ["run", "TARGET", "--workers", "1"], ["resume", "/r"]]
)
def test_a_local_call_makes_no_session(edge: Edge, target: str, words: list[str]) -> None:
    found = []
    edge.ends = lambda: found.append(edge.session) or RESULT  # type: ignore[func-returns-value] # notes it, too
    words = [target if word == "TARGET" else word for word in words]
    for more, slots in ((["--local"], 2), (["--local", "--slots", "3"], 3)):
        assert cli.main([*words, *more]) == 0
        with edge.calls[-1]["engine"]() as engine:
            assert engine.slots == slots
    assert found == [None, None]
    assert edge.sessions == []
    assert edge.nurseries == ["started", "ended"] * 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["sweep", "TARGET", "--grid", "lr=1", "--local", "--master", "yarn"],
            "--local starts no Spark, which --master is for: leave out one of them",
        ),
        (
            ["run", "TARGET", "--workers", "2", "--local", "--conf", "a=b", "--py-files", "x.py"],
            "--local starts no Spark, which --conf and --py-files are for",
        ),
        (["resume", "/r", "--local", "--py-files", "x.py"], "--py-files is for: PYTHONPATH finds modules here"),
        (["sweep", "TARGET", "--grid", "lr=1", "--slots", "2"], "--slots is for --local alone: add --local"),
        (["sweep", "TARGET", "--grid", "lr=1", "--local", "--slots", "0"], "slots (0) must be at least 1"),
    ],
)
def test_options_of_spark_are_refused_beside_it(
    edge: Edge, target: str, capfd: Capture, words: list[str], message: str
) -> None:
    assert cli.main([target if word == "TARGET" else word for word in words]) == 2
    out, err = capfd.readouterr()
    assert message in err
    assert out == ""
    assert not edge.calls
    assert not edge.nurseries


def test_under_spark_submit_a_local_call_is_refused(
    edge: Edge, target: str, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert cli.main(["sweep", target, "--grid", "lr=1", "--local"]) == 2
    assert "--local starts no Spark, which spark-submit is for" in capfd.readouterr().err
