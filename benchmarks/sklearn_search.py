"""64 fits of 50 ms on two slots: `search_cv`, beside GridSearchCV with loky.

    python -m benchmarks.sklearn_search [--rounds 3]

Each fit burns 50 ms of processor time. Cold, each search starts its processes: `search_cv` its agents on this machine,
loky its workers. Warm, both have run a search before. Each figure is the best of the rounds, which alternate. The time
of `search_cv` includes the processes of its fits, one for each, its run directory, and the fit to all rows, which
GridSearchCV performs in this process.

Where `joblibspark` is installed (`pip install joblibspark`), GridSearchCV also runs its fits as tasks of Spark, on two
executors that have run a search before.
"""

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import numpy as np
from joblib import parallel_backend
from joblib.externals.loky import get_reusable_executor
from sklearn.model_selection import GridSearchCV

import sparktrain as st
from benchmarks.burning import FIT_S, Burning
from benchmarks.machine import at_most, show
from benchmarks.session import seconds_of, session

FITS = 64
FOLDS = 4
SLOTS = 2
TARGET = 1.15
SPACE = {"number": list(range(FITS // FOLDS))}
X = np.random.default_rng(0).normal(size=(2000, 20))
Y = (X[:, 0] > 0).astype(int)


def searched(place: Any, folder: str) -> Any:
    """A search of ours, in a directory of its own."""
    where: dict[str, Any] = {"pool": place} if isinstance(place, st.Pool) else {"spark": place}
    name = f"run-{uuid4().hex[:8]}"
    return st.sklearn.search_cv(Burning(), SPACE, X, Y, cv=FOLDS, dir=folder, name=name, progress=False, **where)


def rival() -> Any:
    """The same search by loky."""
    return GridSearchCV(Burning(), SPACE, cv=FOLDS, n_jobs=SLOTS).fit(X, Y)


def on_spark(rounds: int) -> list[float]:
    """Seconds of the same search by joblib-spark, on a warm session; nothing where it is not installed."""
    if not find_spec("joblibspark"):
        return []
    from joblibspark import register_spark

    register_spark()
    with session(), parallel_backend("spark", n_jobs=SLOTS):
        rival()
        return [seconds_of(rival) for _ in range(rounds)]


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """The seconds of a call, and its result."""
    started_at = time.perf_counter()
    result = call()
    return time.perf_counter() - started_at, result


def cold_rival() -> Any:
    """By workers that start now."""
    get_reusable_executor().shutdown(wait=True)
    return rival()


def rows(rounds: int) -> list[tuple[str, str, str]]:
    """The rows of this benchmark's table."""
    seconds: dict[str, list[float]] = {}
    with (
        TemporaryDirectory(prefix="sparktrain-benchmark-") as folder,
        st.pool(st.local(slots=SLOTS), preload=["numpy"]) as pool,
    ):
        searched(pool, folder)
        rival()
        for _ in range(rounds):
            for name, call in (
                ("warm", lambda: searched(pool, folder)),
                ("warm rival", rival),
                ("cold", lambda: searched(st.local(slots=SLOTS), folder)),
                ("cold rival", cold_rival),
            ):
                taken, result = timed(call)
                seconds.setdefault(name, []).append(taken)
                seconds.setdefault(f"{name} score", []).append(result.best_score_)
    assert len({score for name, scores in seconds.items() if name.endswith("score") for score in scores}) == 1
    best = {name: min(values) for name, values in seconds.items()}
    table = []
    for kind in ("warm", "cold"):
        ratio = best[kind] / best[f"{kind} rival"]
        table.append((f"search_cv, {kind}", f"{best[kind]:.2f} s", ""))
        table.append((f"rival: GridSearchCV(n_jobs={SLOTS}) with loky, {kind}", f"{best[f'{kind} rival']:.2f} s", ""))
        table.append((f"ratio, {kind}", f"{ratio:.2f}", at_most(ratio, TARGET)))
    if by_tasks := on_spark(rounds):
        table.append(("rival: GridSearchCV with joblib-spark, warm", f"{min(by_tasks):.2f} s", ""))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    ideal = FITS * FIT_S / SLOTS
    title = f"{FITS} fits of {FIT_S * 1000:.0f} ms on {SLOTS} slots: {ideal:.1f} s of work for each"
    show(title, ("", "measured", "target"), rows(given.rounds))


if __name__ == "__main__":
    main()
