"""The libraries that a zygote may import start no Python thread, and work in a forked child; what is deferred loads on
use."""

import importlib.util
import subprocess
import sys

from sparktrain.usercode.preload import SAFE
from sparktrain.usercode.serialize import preload_choice
from tests.process.harness import Bench

PARTS = {"matplotlib": "matplotlib.pyplot", "PIL": "PIL.Image", "scipy": "scipy.stats", "sklearn": "sklearn.ensemble"}
CHILD_S = 60

PROGRAM = """
import importlib, inspect, os, sys, threading
from sparktrain.base import deferred_wrappers
deferred_wrappers.defer()
import keras
inspect.getmodule(compile("", "unknown", "exec"))  # looks at all modules
assert "sklearn" not in sys.modules
wrapper = keras.wrappers.SKLearnClassifier
assert issubclass(wrapper, sys.modules["sklearn.base"].BaseEstimator)
assert wrapper is keras._tf_keras.keras.wrappers.SKLearnClassifier
assert not hasattr(keras.wrappers, "no_such")
for name in sys.argv[1:]:
    importlib.import_module(name)
    assert threading.active_count() == 1, (name, threading.enumerate())
child = os.fork()
if not child:
    import keras, numpy as np, pandas as pd, pyarrow.parquet, tempfile
    from sklearn.ensemble import RandomForestClassifier
    x = np.random.rand(512, 8)
    np.linalg.svd(x @ x.T)
    RandomForestClassifier(5, n_jobs=2).fit(x, x[:, 0] > 0.5)
    with tempfile.TemporaryDirectory() as folder:
        pd.DataFrame(x).rename(columns=str).to_parquet(f"{folder}/x", engine="pyarrow")
        pyarrow.parquet.read_table(f"{folder}/x", use_threads=True)
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(x, x[:, 0], verbose=0)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_process_that_imported_all_of_them_can_be_forked() -> None:
    installed = sorted(name for name in SAFE if importlib.util.find_spec(name))
    assert {"keras", "numpy", "pandas", "pyarrow", "scipy", "sklearn", "tensorflow"} <= set(installed)
    command = [sys.executable, "-c", PROGRAM, *(PARTS.get(name, name) for name in installed)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=CHILD_S, check=False)
    assert ran.returncode == 0, ran.stderr


def test_pyspark_alone_starts_no_process_and_loads_no_connect_client_and_no_numpy() -> None:
    program = (
        "import os, sys, threading, pyspark\n"
        "print({'grpc', 'numpy', 'pandas', 'pyarrow', 'pyspark.sql.connect'} & set(sys.modules))\n"
        "print(threading.active_count(), len(os.listdir('/proc/self/task')))\n"
        "try:\n    os.waitpid(-1, os.WNOHANG)\nexcept ChildProcessError:\n    print('no child')\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=CHILD_S, check=True)
    assert ran.stdout == "set()\n1 1\nno child\n"


async def test_a_trial_has_the_pyspark_of_its_zygote_and_cannot_start_spark_with_it(bench: Bench) -> None:
    def train() -> float:
        import sys

        loaded = sys.modules.get("pyspark.sql")
        from pyspark.sql import SparkSession

        assert sys.modules["pyspark.sql"] is loaded
        SparkSession.builder.getOrCreate()
        return 1.0

    assert await bench.zygote.preload(preload_choice(train).modules) == {}
    trial = await bench.run(train)
    assert trial.failure.summary.startswith("SessionError: a trial cannot use Spark")
