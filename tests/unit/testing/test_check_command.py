"""`sparktrain check`: its options, its lines and its exit codes."""

import pytest

from sparktrain import cli
from sparktrain.testing import check_process
from sparktrain.testing.check_command import CODE_OF_STATUS, check, lines
from sparktrain.testing.function_check import CheckAnswer, CheckEnd, CheckReport, CheckRequest

CALL = ["check", "train.py:train"]


def test_options_are_passed_on(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    asked: list[CheckRequest] = []

    def checked(request: CheckRequest) -> CheckReport:
        asked.append(request)
        return CheckReport(function=request.target, params=request.params, workers=request.workers)

    monkeypatch.setattr(check_process, "checked", checked)
    options = ["--param", "lr=0.1", "--param", "layers=[64, 32]", "--workers", "4", "--backend", "tensorflow"]
    code = cli.main([*CALL, *options, "--metric", "acc", "--seed", "3", "--env", "A=1", "--timeout", "1m30s"])

    params = {"lr": 0.1, "layers": [64, 32]}
    assert asked == [CheckRequest("train.py:train", params, 4, "tensorflow", "acc", 3, {"A": "1"}, timeout_s=90.0)]
    assert code == 0
    assert capfd.readouterr().out.startswith("train.py:train(lr=0.1, layers=[64, 32]): ok")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--workers", "0"], "--workers (0) must be at least 1"),
        (["--workers", "two"], "--workers"),
        (["--folds", "0"], "--folds (0) must be at least 1"),
        (["--backend", "horovad"], "did you mean 'horovod'"),
        (["--param", "lr"], "--param 'lr'"),
        (["--param", "lr=1", "--param", "lr=2"], "'lr' is given twice"),
        (["--metric", ""], "--metric"),
        (["--timeout", "soon"], "--timeout"),
        (["--timeout", "0s"], "--timeout"),
        (["--env", "SPARKTRAIN_X=1"], "SPARKTRAIN_X"),
        (["--master", "yarn"], "--master"),
    ],
)
def test_wrong_options_are_refused_before_a_process_starts(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    monkeypatch.delattr(check_process, "checked")
    assert cli.main([*CALL, *options]) == 2
    assert words in capfd.readouterr().err


def test_every_status_has_an_exit_code_that_help_explains() -> None:
    assert set(CODE_OF_STATUS.values()) <= set(check.command_class.codes)
    assert CODE_OF_STATUS == {"ok": 0, "refused": 2, "failed": 3, "crashed": 3, "timeout": 6}


def test_long_lists_are_cut() -> None:
    reports = [{"step": step, "metrics": {"loss": 1.0}} for step in range(8)]
    report = CheckReport(
        function="train",
        params={},
        workers=1,
        end=CheckEnd(traceback="a\nb\n"),
        answer=CheckAnswer(reports),
        notices=["a word"],
    )
    shown = list(lines(report))

    assert shown[:3] == ["train(): ok, 0.0 s", "a", "b"]
    assert shown.count("reports: and 3 more") == 1
    assert shown[-1] == "notice: a word"


def test_the_document_is_flat() -> None:
    document = CheckReport(function="train", params={"lr": 0.1}, workers=2).document()
    assert list(document) == [
        *("function", "params", "workers", "status", "problem", "traceback", "seconds"),
        *("shipped_bytes", "shipped_files", "captures", "preload", "backend", "backend_reason", "mirrored"),
        *("reports", "result", "metric", "checkpoints", "files", "model_exported"),
        *("keras_unsupported", "notices", "hints"),
    ]
    assert (document["status"], document["files"], document["preload"]) == ("ok", [], ())
