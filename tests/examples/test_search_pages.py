"""The programs of the pages about search, stoppers, Optuna and scikit-learn, each page as one program here."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
RUN_S = 240.0
COVERED = {
    "optuna": pytest.mark.all(case="the programs of the page about Optuna", covered_by="`process/test_optuna`"),
    "sklearn": pytest.mark.all(
        case="the programs of the page about searches of scikit-learn",
        covered_by="`examples/test_sklearn_page`; `process/test_sklearn_search`",
    ),
}
"""By page, where `make test-all` alone runs its programs."""
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
HERE = """\
from functools import partial

import sparktrain as st

spark = st.local(slots=2)
st.sweep = partial(st.sweep, spark=spark, dir="runs", preload=["numpy"], progress=False)
"""
BEFORE = {
    "search": """
pool = st.pool(spark, preload=["numpy"])
st.sweep = partial(pool.sweep, dir="runs", progress=False)  # eight sweeps
import pandas as pd

def train(lr, dropout, units=64):
    return {"accuracy": 1 - abs(lr - 0.01) - dropout / 10, "latency_ms": units / 10, "size_mb": units / 100}

space = {"lr": st.loguniform(1e-3, 1), "dropout": st.uniform(0, 0.5)}
table = pd.DataFrame({"lr": [0.01, 0.1], "dropout": [0.1, 0.2], "accuracy": [0.9, 0.8]})
for name in ("monday", "a", "b"):
    st.sweep(train, space, metric="accuracy", trials=2, name=name)
""",
    "search-reference": "",
    "stopping": """
def train(lr, ctx):
    for epoch in range(27):
        ctx.report(epoch, accuracy=lr * epoch)
        if ctx.should_stop():
            break
    return {"accuracy": lr * epoch}

space, value = {"lr": [0.3, 0.2, 0.1, 0.05]}, 0.5
""",
    "optuna": """
class Model:
    def __init__(self, layers, lr):
        self.accuracy, self.gain = 0.0, lr * layers

    def train_one_epoch(self):
        self.accuracy += self.gain
        return self.accuracy

build = Model
""",
    "sklearn": """
from sklearn.datasets import load_breast_cancer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

X, y = load_breast_cancer(return_X_y=True)
pipeline = Pipeline([("scale", StandardScaler()), ("svc", SVC())])
space = {"svc__C": [0.1, 1, 10], "svc__kernel": ["rbf", "linear"]}
st.sklearn.search_cv = partial(st.sklearn.search_cv, dir="runs", progress=False)
""",
}
"""What the readers of a page have."""
AFTER = {
    "search": "assert len(result.trials) == 4, result\npool.close()\n",
    "search-reference": "assert isinstance(TestBisection().make(), Bisection)\n",
    "stopping": 'assert st.sweep(train, {"lr": [0.1]}, metric="accuracy").best.metrics == {"accuracy": 0.5}\n',
    "optuna": "assert len(kept.trials) == 4, kept.trials\n",
    "sklearn": """
rows = search.cv_results_["n_resources"]
assert rows[search.best_index_] == len(X) * 4 // 5 == max(rows), rows
""",
}
SMALLER = {
    "trials=60": "trials=6",
    "trials=40": "trials=4",
    "n_trials=100": "n_trials=4",
    '"hdfs:///runs': '"runs',
    '"/shared/runs': '"runs',
    'kept = optuna.create_study(storage="sqlite:///mnist.db"': 'kept = optuna.create_study(storage="sqlite:///kept.db"',
}
"""What is replaced: numbers of trials, and places that this machine lacks or that another block has used."""


def program(page: str) -> str:
    """The blocks of a page in their order, between what its readers have and what must hold then."""
    blocks = _BLOCK.findall((DOCS / f"{page}.md").read_text())
    text = "\n".join(blocks)
    for old, new in SMALLER.items():
        text = text.replace(old, new)
    return f"{HERE}{BEFORE[page]}{text}\n{AFTER[page]}"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", [pytest.param(page, marks=COVERED.get(page, ())) for page in BEFORE])
def test_the_programs_of_a_page_run(page: str, tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text(program(page))
    ran = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, timeout=RUN_S, check=False
    )
    assert ran.returncode == 0, ran.stderr
