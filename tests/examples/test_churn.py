"""The example with Spark's own table, as a notebook in a real kernel: joins, a gang of two, and a scored table."""

import json
import os
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.examples.test_readme import activated
from tests.spark.notebook import Notebook

NOTEBOOK = Path(__file__).parents[2] / "examples" / "churn.ipynb"
CELL_S = 200.0
UNSEEN = 19_857
"""Of 200,000 customers: a hash of their numbers chooses them, so that it is the same in each run."""


@pytest.mark.all(
    case="`make demo-data`: a notebook that joins tables, trains a gang and scores 20,000 rows",
    covered_by="`spark/test_data`: a gang on a DataFrame; `spark/test_predict`; `spark/test_notebook`",
)
@pytest.mark.timeout(600)
def test_the_notebook_trains_a_gang_on_a_table_of_spark_and_scores_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in activated().items():
        monkeypatch.setenv(name, value)
    for name in set(os.environ) - set(activated()):
        monkeypatch.delenv(name)
    code = [
        "".join(cell["source"]) for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"
    ]
    with Notebook(tmp_path) as notebook:
        printed = [notebook.run(each, CELL_S).printed for each in code]

    assert any("200,000 customers" in each for each in printed)
    assert any(re.search(r"succeeded in .* on 2 members", each) for each in printed)
    said = re.search(r"accuracy ([\d.]+)%; to expect that all stay would give ([\d.]+)%", printed[-1])
    assert said, printed[-1]
    assert float(said[1]) > 90 > 75 > float(said[2])

    runs = tmp_path / "sparktrain-runs"
    scores = pq.read_table(runs / "churn-scores").to_pydict()
    assert len(set(scores["customer"])) == len(scores["customer"]) == UNSEEN
    right = sum((chance > 0.5) == (left == 1) for chance, left in zip(scores["chance"], scores["left"], strict=True))
    assert f"{right / UNSEEN:.1%}" == f"{float(said[1]):.1f}%"
    [model] = runs.glob("train-*/trials/0000/generation-1/rank-0/model.keras")
    assert str(model) in printed[-1]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["kernel.txt", "sparktrain-runs"]
