"""The libraries that a zygote may import start no Python thread, and work in a forked child."""

import importlib.util
import subprocess
import sys

from sparktrain.usercode.preload import SAFE

PARTS = {"matplotlib": "matplotlib.pyplot", "PIL": "PIL.Image", "scipy": "scipy.stats", "sklearn": "sklearn.ensemble"}
CHILD_S = 60

PROGRAM = """
import importlib, os, sys, threading
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
