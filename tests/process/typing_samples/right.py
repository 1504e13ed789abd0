"""A program that uses every public call as the docs show it: type checkers find nothing in it."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import sparktrain as st


class Fixed:
    """A sampler."""

    learns = False
    total: int | None = 1

    def suggest(self, count: int) -> st.Suggestion:
        return st.Suggestion(({"lr": 0.1},), exhausted=True)

    def observe(self, observation: st.Observation) -> None:
        print(observation.trial, observation.status, observation.metrics)

    def restore(self, history: Sequence[st.PastSuggestion | st.Observation]) -> None:
        print(len(history))


SAMPLER: st.Sampler = Fixed()


def train(lr: float, dropout: float = 0.5) -> dict[str, float]:
    return {"accuracy": lr * dropout}


def all_calls(directory: Path) -> None:
    swept: st.SweepResult = st.sweep(
        train, {"lr": [0.1, 0.01]}, metric="accuracy", mode="max", dir=directory, name="mnist", trials=4,
        trial_timeout="30m", timeout=timedelta(hours=2), max_retries=1, max_failures="auto", workers_per_trial=2,
        backend="tensorflow", max_concurrent_trials=2, env={"HF_HUB_OFFLINE": 1}, allow_changed=["code"],
    )  # fmt: skip
    print(swept.to_pandas())
    searched = st.space(lr=st.loguniform(1e-4, 1e-1), dropout=st.when(lambda p: p["lr"] < 0.1, st.uniform(0, 0.5)))
    st.sweep(train, searched, metric="accuracy", sampler="tpe", trials=10)
    st.sweep(train, {"lr": st.loguniform(1e-4, 1e-1), "dropout": 0.5}, metric="accuracy", sampler=Fixed(), trials=1)
    st.launch(None, train, {"lr": [0.1], "dropout": [0.4]}, max_failures=None, progress=False)
    ran: st.RunResult = st.run(train, {"lr": 0.1}, workers=4, backend="horovod", agents=5, hang_timeout=60, mode=None)
    print(ran.metrics)
    st.resume("hdfs:///runs/mnist", retry_failed=True, max_concurrent_trials=2)
    with st.pool(agents=2, preload=["numpy"], idle_timeout=None) as pool:
        pool.sweep(train, [{"lr": 0.1}], metric="accuracy", workers_per_trial=2)
        pool.launch(train, {"lr": [0.1]}, trials=1)
        pool.run(train, {"lr": 0.1}, workers=2, max_retries=0)
