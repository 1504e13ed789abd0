"""Can a process that has imported a library be forked, and train in the child? What a zygote may preload is seen here.

    python -m benchmarks.fork_safety [--children 200] [--together 4] [--deadline 60] [LIBRARY ...]

For each library, a process imports it, and counts the seconds of a core that this takes, and what exists then: its
threads, those of native code, the OpenMP runtimes that are loaded, and open devices. Then it forks children, several at
a time, which train a small model each with 1 and with 4 threads. A child that is not done by the deadline hangs. The
control forks children from a process that has trained itself before, which is what a zygote never does: with most
libraries they hang. Libraries that are not installed are left out; those joined by
`+` are imported into one process.
"""

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from benchmarks.machine import show

THREADS = (1, 4)
CONTROLS = 4
CONTROL_DEADLINE_S = 10.0
DEVICES = ("/dev/nvidia", "/dev/dri", "/dev/kfd")
RUNTIMES = ("libgomp", "libomp", "libiomp5")
ROWS = 500


def numpy_fit(threads: int) -> None:
    import numpy as np
    from threadpoolctl import threadpool_limits

    with threadpool_limits(threads):
        x = np.random.default_rng(0).random((200, 200))
        np.linalg.svd(x @ x.T)


def sklearn_fit(threads: int) -> None:
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    x, y = _table()
    with threadpool_limits(threads):
        HistGradientBoostingClassifier(max_iter=2).fit(x, y)
        LogisticRegression().fit(x, y)
        RandomForestClassifier(4, n_jobs=threads).fit(x, y)


def torch_fit(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    model = torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(256, 128)
    for _ in range(10):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def jax_fit(threads: int) -> None:
    os.environ["NPROC"] = str(threads)  # what XLA takes for the number of processors
    import jax
    import jax.numpy as jnp

    x = jax.random.normal(jax.random.key(0), (256, 128))
    step = jax.jit(jax.value_and_grad(lambda w: jnp.square(jnp.tanh(x @ w)).mean()))
    weights = jnp.ones((128, 128))
    for _ in range(10):
        _, gradient = step(weights)
        weights = weights - 0.1 * gradient
    weights.block_until_ready()


def xgboost_fit(threads: int) -> None:
    import xgboost

    x, y = _table()
    xgboost.train({"nthread": threads}, xgboost.DMatrix(x, y, nthread=threads), num_boost_round=5)


def lightgbm_fit(threads: int) -> None:
    import lightgbm

    x, y = _table()
    lightgbm.train({"num_threads": threads, "verbose": -1}, lightgbm.Dataset(x, y), num_boost_round=5)


def catboost_fit(threads: int) -> None:
    import catboost

    x, y = _table()
    model = catboost.CatBoostClassifier(iterations=5, thread_count=threads, verbose=False, allow_writing_files=False)
    model.fit(x, y)


def polars_fit(threads: int) -> None:
    import polars

    x, y = _table()
    frame = polars.DataFrame({"x": x[:, 0], "y": y})
    frame.lazy().group_by("y").agg(polars.col("x").mean()).sort("y").collect()
    assert frame.head(10).join(frame, on="y").height


def transformers_fit(threads: int) -> None:
    import torch
    from transformers import BertConfig, BertModel

    torch.set_num_threads(threads)
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertModel(BertConfig(vocab_size=100, **size))
    model(torch.ones((4, 16), dtype=torch.long)).last_hidden_state.sum().backward()


def accelerate_fit(threads: int) -> None:
    import torch
    from accelerate import Accelerator

    torch.set_num_threads(threads)
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(128, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    accelerator.backward(model(torch.randn(256, 128)).square().mean())
    optimizer.step()


def lightning_fit(threads: int) -> None:
    import lightning.pytorch as pl
    import torch

    torch.set_num_threads(threads)

    class Model(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(128, 1)

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            return self.net(batch).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(accelerator="cpu", max_steps=10, enable_model_summary=False, **quiet)
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(2560, 128), batch_size=256))


def tensorflow_fit(threads: int) -> None:
    import keras
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    x, y = _table()
    model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(x, y, batch_size=250, verbose=0)


def keras_fit(threads: int) -> None:
    """By whichever backend this process has imported Keras."""
    os.environ["NPROC"] = str(threads)
    import keras

    if keras.backend.backend() == "torch":
        import torch

        torch.set_num_threads(threads)
    x, y = _table()
    model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dropout(0.1)])
    model.add(keras.layers.Dense(1))
    model.compile("adam", "mse")
    model.fit(x, y, batch_size=250, verbose=0)


def _table() -> tuple[object, object]:
    import numpy as np

    x = np.random.default_rng(0).random((ROWS, 20))
    return x, (x[:, 0] > 0.5).astype(int)


FITS: dict[str, tuple[tuple[str, ...], Callable[[int], None]]] = {
    "numpy": (("numpy", "scipy.stats", "pandas", "pyarrow.parquet"), numpy_fit),
    "tensorflow": (("tensorflow", "keras"), tensorflow_fit),
    "sklearn": (("sklearn.ensemble", "sklearn.linear_model"), sklearn_fit),
    "keras-on-jax": (("jax", "keras"), keras_fit),
    "keras-on-torch": (("torch", "torch._dynamo", "keras"), keras_fit),
    "xgboost": (("xgboost",), xgboost_fit),
    "lightgbm": (("lightgbm",), lightgbm_fit),
    "jax": (("jax", "jax.numpy"), jax_fit),
    "torch": (("torch", "torch._dynamo"), torch_fit),
    "catboost": (("catboost",), catboost_fit),
    "polars": (("polars",), polars_fit),
    "accelerate": (("torch", "torch._dynamo", "accelerate"), accelerate_fit),
    "lightning": (("torch", "torch._dynamo", "lightning.pytorch"), lightning_fit),
    "transformers": (("torch", "torch._dynamo", "transformers.trainer"), transformers_fit),
}
"""For each library, the modules that are imported before the forks, and what a child does."""
_KERAS_ON = "keras-on-"
"""The start of the rows of Keras: the backend follows."""
TOGETHER = ("torch+xgboost+lightgbm+sklearn", "jax+xgboost+lightgbm+sklearn")
"""Several runtimes of OpenMP in one process."""
PACKAGES = (
    "scikit-learn",
    "xgboost-cpu",
    "lightgbm",
    "jax",
    "torch",
    "catboost",
    "polars",
    "accelerate",
    "lightning",
    "transformers",
)


class Children:
    """Forks children of this process, some at a time, and counts how they end."""

    def __init__(self, work: Callable[[], None], together: int, deadline_s: float) -> None:
        self._work = work
        self._together = together
        self._deadline_s = deadline_s
        self._running: dict[int, tuple[int, float]] = {}
        """For each running child its process, as a descriptor, and its start."""
        self.seconds: list[float] = []
        """Of those that have trained."""
        self.hung = 0
        self.crashed = 0

    def run(self, count: int) -> None:
        while count or self._running:
            while count and len(self._running) < self._together:
                self._fork()
                count -= 1
            self._wait()

    def _fork(self) -> None:
        pid = os.fork()
        if not pid:
            status = 1
            try:
                self._work()
                status = 0
            finally:
                os._exit(status)
        self._running[pid] = (os.pidfd_open(pid), time.perf_counter())

    def _wait(self) -> None:
        """Wait for the end of a child, or for the first deadline."""
        first_start = min(started for _, started in self._running.values())
        timeout_s = max(0.0, first_start + self._deadline_s - time.perf_counter())
        select.select([descriptor for descriptor, _ in self._running.values()], [], [], timeout_s)
        for pid, (descriptor, started) in list(self._running.items()):
            lasted_s = time.perf_counter() - started
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended and lasted_s < self._deadline_s:
                continue
            if not ended:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                self.hung += 1
            elif status:
                self.crashed += 1
            else:
                self.seconds.append(lasted_s)
            os.close(descriptor)
            del self._running[pid]

    @property
    def summary(self) -> str:
        """How they ended."""
        parts = [f"{len(self.seconds)} trained"]
        parts += [f"{count} {word}" for count, word in ((self.hung, "hung"), (self.crashed, "crashed")) if count]
        return ", ".join(parts) + (f"; {median(self.seconds):.2f} s" if self.seconds else "")


def examine(name: str, children: int, together: int, deadline_s: float) -> dict[str, object]:
    """Import the libraries of `name` in this process, and fork it; what was seen, as a row of the table."""
    libraries = name.split("+")
    modules = [module for library in libraries for module in FITS[library][0]]
    started = time.process_time()
    for module in modules:
        import_module(module)
    import_s = time.process_time() - started

    def work(threads: int) -> None:
        for library in libraries:
            FITS[library][1](threads)

    row: dict[str, object] = {"import": f"{import_s:.1f} s", "state": state()}
    for threads in THREADS:
        forked = Children(lambda threads=threads: work(threads), together, deadline_s)  # type: ignore[misc]
        forked.run(children)
        row[str(threads)] = forked.summary
    work(THREADS[-1])
    control = Children(lambda: work(THREADS[-1]), CONTROLS, CONTROL_DEADLINE_S)
    control.run(CONTROLS)
    row["control"] = control.summary
    return row


def state() -> str:
    """What of this process a fork could lose: threads, by the names of native ones, runtimes of OpenMP, devices."""
    tasks = [Path("/proc/self/task", task, "comm").read_text().strip() for task in os.listdir("/proc/self/task")]
    maps = Path("/proc/self/maps").read_text()
    files = {line.rpartition("/")[2] for line in maps.splitlines() if "/" in line}
    runtimes = sum(file.startswith(RUNTIMES) for file in files)
    devices = sum(
        _target(number).startswith(("/dev/nvidia", "/dev/dri", "/dev/kfd")) for number in os.listdir("/proc/self/fd")
    )
    parts = [f"{threading.active_count()} Python", f"{len(tasks)} native", f"{runtimes} OpenMP"]
    return ", ".join([*parts, *([f"{devices} devices"] if devices else [])])


def _target(number: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:  # that of the listing itself
        return ""


def rows(names: list[str], children: int, together: int, deadline_s: float) -> Iterator[tuple[str, ...]]:
    """The table: each library in a process of its own."""
    for name in names:
        backend = name.removeprefix(_KERAS_ON)
        if not all(map(find_spec, ("keras", backend) if backend != name else name.split("+"))):
            continue
        command = [sys.executable, "-m", "benchmarks.fork_safety", "--examine", name]
        command += ["--children", str(children), "--together", str(together), "--deadline", str(deadline_s)]
        # The lines that libraries print, such as those of TensorFlow, are not for this table.
        variables = os.environ | ({"KERAS_BACKEND": backend} if backend != name else {})
        ran = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
        if ran.returncode:
            yield name, "", "", ran.stderr.strip().splitlines()[-1][:60], "", ""
            continue
        row = json.loads(ran.stdout.splitlines()[-1])
        yield name, row["import"], row["state"], row["1"], row["4"], row["control"]
        print(name, row, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="*", default=[*FITS, *TOGETHER])
    parser.add_argument("--children", type=int, default=200)
    parser.add_argument("--together", type=int, default=4)
    parser.add_argument("--deadline", type=float, default=60.0)
    parser.add_argument("--examine", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.examine:
        print(json.dumps(examine(given.examine, given.children, given.together, given.deadline)))
        return
    title = f"{given.children} children of a process that has imported a library, {given.together} at a time"
    columns = ("library", "import", "threads, OpenMP", "1 thread", "4 threads", "after a fit in the parent, 4 threads")
    show(title, columns, rows(given.libraries, given.children, given.together, given.deadline), versions())


def versions() -> str:
    """Those of the libraries, in one line."""
    installed = {package.metadata["Name"].lower(): package.version for package in metadata.distributions()}
    return ", ".join(f"{name} {installed[name]}" for name in PACKAGES if name in installed)


if __name__ == "__main__":
    main()
