"""64 fits of 50 ms on two slots: `search_cv`, beside GridSearchCV with loky.

    python -m benchmarks.sklearn_search [--rounds 3] [--ms 20 50 200] [--shared-mb 400]

Each fit burns so much processor time. Cold, each search starts its processes: `search_cv` its agents on this machine,
loky its workers. Warm, both have run a search before. Each figure is the best of the rounds, which alternate. The time
of `search_cv` includes the processes of its fits, one for each, its run directory, and the fit to all rows, which
GridSearchCV performs in this process.

With `--shared-mb` the fits of the first length also share that many megabytes of rows: `search_cv` stores them once and
maps them in each fit, and loky sends them with each fit (`max_nbytes=None`), or maps them too, as it does by default.

Where `joblibspark` is installed (`pip install joblibspark`), GridSearchCV also runs its fits as tasks of Spark, on two
executors that have run a search before.
"""

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
from joblib import parallel_backend, parallel_config
from joblib.externals.loky import get_reusable_executor
from sklearn.model_selection import GridSearchCV

import sparktrain as st
from benchmarks.burning import FIT_S, Burning
from benchmarks.machine import at_most, show
from benchmarks.session import seconds_of, session

FITS = 64
FOLDS = 4
SLOTS = 2
TARGETS = {20: 1.2, 50: 1.05, 200: 0.95}
"""Limits of the warm ratio, by milliseconds of a fit."""
SHARED_FITS, SHARED_TARGET = 16, 0.5
"""Of fits that share large data: how many, and the limit of their ratio."""
COLUMNS = 20
ROWS = 2000


class Search(NamedTuple):
    """A search over `number` candidates, each fitted to each fold."""

    fit_s: float = FIT_S
    fits: int = FITS
    rows: int = ROWS

    @property
    def space(self) -> dict[str, list[int]]:
        """The candidates."""
        return {"number": list(range(self.fits // FOLDS))}

    @property
    def data(self) -> tuple[Any, Any]:
        """X and y."""
        features = np.random.default_rng(0).normal(size=(self.rows, COLUMNS))
        return features, (features[:, 0] > 0).astype(int)

    def ours(self, place: Any, folder: str, data: tuple[Any, Any]) -> Any:
        """By `search_cv`, in a directory of its own."""
        where: dict[str, Any] = {"pool": place} if isinstance(place, st.Pool) else {"spark": place}
        name = f"run-{uuid4().hex[:8]}"
        estimator = Burning(fit_s=self.fit_s)
        return st.sklearn.search_cv(
            estimator, self.space, *data, cv=FOLDS, dir=folder, name=name, progress=False, **where
        )

    def rival(self, data: tuple[Any, Any]) -> Any:
        """By loky."""
        return GridSearchCV(Burning(fit_s=self.fit_s), self.space, cv=FOLDS, n_jobs=SLOTS).fit(*data)


def on_spark(rounds: int) -> list[float]:
    """Seconds of the same search by joblib-spark, on a warm session; nothing where it is not installed."""
    if not find_spec("joblibspark"):
        return []
    from joblibspark import register_spark

    register_spark()
    search = Search()
    data = search.data
    with session(), parallel_backend("spark", n_jobs=SLOTS):
        search.rival(data)
        return [seconds_of(lambda: search.rival(data)) for _ in range(rounds)]


def best_of(rounds: int, calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """The least seconds of each call, which alternate; all searches have the same best score."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    scores = set()
    for _ in range(rounds):
        for name, call in calls.items():
            started_at = time.perf_counter()
            result = call()
            seconds[name].append(time.perf_counter() - started_at)
            scores.add(result.best_score_)
    assert len(scores) == 1, scores
    return {name: min(values) for name, values in seconds.items()}


def rows_of(title: str, ours_s: float, rivals: dict[str, float], target: float) -> list[tuple[str, str, str]]:
    """The rows of one search: ours, its rivals, and the ratio to the first of them."""
    ratio = ours_s / next(iter(rivals.values()))
    return [
        (f"{title}: search_cv", f"{ours_s:.2f} s", ""),
        *((f"{title}: GridSearchCV, {name}", f"{rival_s:.2f} s", "") for name, rival_s in rivals.items()),
        (f"{title}: ratio", f"{ratio:.2f}", at_most(ratio, target)),
    ]  # fmt: skip


def warm_rows(pool: st.Pool, folder: str, search: Search, rounds: int, target: float) -> list[tuple[str, str, str]]:
    """The rows of a search where both have run one before."""
    data = search.data
    calls = {"ours": lambda: search.ours(pool, folder, data), "loky": lambda: search.rival(data)}
    for call in calls.values():
        call()
    best = best_of(rounds, calls)
    return rows_of(f"{1000 * search.fit_s:.0f} ms, warm", best["ours"], {"loky": best["loky"]}, target)


def cold_rows(folder: str, rounds: int) -> list[tuple[str, str, str]]:
    """The rows of a search by processes that start now."""
    search = Search()
    data = search.data

    def cold_rival() -> Any:
        get_reusable_executor().shutdown(wait=True)
        return search.rival(data)

    best = best_of(rounds, {"ours": lambda: search.ours(st.local(slots=SLOTS), folder, data), "loky": cold_rival})
    title = f"{1000 * search.fit_s:.0f} ms, cold"
    return rows_of(title, best["ours"], {"loky": best["loky"]}, TARGETS[round(1000 * FIT_S)])


def shared_rows(pool: st.Pool, folder: str, megabytes: int, rounds: int) -> list[tuple[str, str, str]]:
    """The rows of a search over large data: loky sends it with each fit, or maps it."""
    search = Search(fits=SHARED_FITS, rows=megabytes * 10**6 // (8 * COLUMNS))
    data = search.data

    def sent() -> Any:
        with parallel_config(backend="loky", max_nbytes=None):
            return search.rival(data)

    calls = {
        "ours": lambda: search.ours(pool, folder, data),
        "loky sends": sent,
        "loky maps": lambda: search.rival(data),
    }
    best = best_of(rounds, calls)
    ours_s = best.pop("ours")
    return rows_of(f"{search.fits} fits on {megabytes} MB", ours_s, best, SHARED_TARGET)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ms", type=int, nargs="+", default=[20, 50, 200], choices=list(TARGETS))
    parser.add_argument("--shared-mb", type=int, default=400)
    options = parser.parse_args()
    rows: list[tuple[str, str, str]] = []
    with (
        TemporaryDirectory(prefix="sparktrain-benchmark-") as folder,
        st.pool(st.local(slots=SLOTS), preload=["numpy"]) as pool,
    ):
        for fit_ms in options.ms:
            rows += warm_rows(pool, folder, Search(fit_ms / 1000), options.rounds, TARGETS[fit_ms])
        if options.shared_mb:
            rows += shared_rows(pool, folder, options.shared_mb, options.rounds)
        rows += cold_rows(folder, options.rounds)
    if by_tasks := on_spark(options.rounds):
        rows.append(("50 ms, warm: GridSearchCV with joblib-spark", f"{min(by_tasks):.2f} s", ""))
    show(f"{FITS} fits on {SLOTS} slots", ("", "measured", "target"), rows)


if __name__ == "__main__":
    main()
