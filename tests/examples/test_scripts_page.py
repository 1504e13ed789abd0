"""The script on the page about scripts, and the commands and the call that this page and that for newcomers have."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from sparktrain import cli

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "scripts.md").read_text()
SCRIPT = re.findall(r"^```python title=\"train_script.py\"\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[0]
CALL = re.findall(r"^```python\n(import sparktrain as st\n.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[0]
COMMAND = re.compile(r"^\$ sparktrain (sweep \S+\.py .* -- .*)$", re.MULTILINE)


@pytest.fixture(autouse=True)
def _script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("train_script.py").write_text(SCRIPT)
    # The script of a newcomer prints what this one reports.
    printing = re.sub(r"sparktrain\.report\(epoch, loss=(.*)\)\n", r'print(f"val_loss: {\1:.6f}")\n', SCRIPT)
    assert printing != SCRIPT
    Path("train.py").write_text(printing.replace("import sparktrain\n", ""))


@pytest.mark.parametrize(("page", "rates"), [("scripts", [0.1, 0.1, 0.4, 0.4]), ("coming-from", [0.1, 0.01])])
def test_the_command_of_a_page_sweeps_over_a_script(
    page: str, rates: list[float], capfd: pytest.CaptureFixture[str]
) -> None:
    [line] = COMMAND.findall((DOCS / f"{page}.md").read_text())
    before, _, arguments = line.partition(" -- ")
    assert cli.main([*shlex.split(before), "--local", "--json", "--quiet", "--", *shlex.split(arguments)]) == 0
    trials = json.loads(capfd.readouterr().out)["trials"]
    assert [trial["params"]["lr"] for trial in trials] == rates
    # Three steps of gradient descent on (weight - 3) ** 2, by --epochs 3.
    losses = [next(iter(trial["metrics"].values())) for trial in trials]
    assert losses == pytest.approx([9 * (1 - 2 * rate) ** 6 for rate in rates], abs=1e-6)


def test_the_call_of_the_page_sweeps_over_the_script() -> None:
    names: dict[str, Any] = {}
    exec(CALL, names)
    assert names["result"].best.params == {"lr": 0.4}
    assert names["result"].best.metrics["loss"] == pytest.approx(9 * 0.2**6)
