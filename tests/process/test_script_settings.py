"""A program's settings of libraries hold in its trials as in the program itself."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

START = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import json, sys, tempfile
import sparktrain as st

def compare(train):
    result = st.sweep(
        train, {"lr": [0.1]}, metric="loss", mode="min", spark=st.local(slots=1), dir=tempfile.mkdtemp(), progress=False
    )
    trial = result.trials[0]
    log = open(trial.log).read() if os.path.exists(trial.log) else ""
    print(json.dumps({"script": train(0.1), "trial": trial.metrics, "error": str(trial.error), "log": log}))
"""
SETTINGS = """
import absl.flags, csv, decimal, locale, logging, multiprocessing, warnings
import jax, keras, lightgbm, mlflow, numpy, optuna, pandas, scipy.special, sklearn, tensorflow as tf, xgboost
from sparktrain.protocol.settings import script_settings

if __name__ == "__main__":
    unset = list(script_settings.described(script_settings.changed()))
    assert not unset, f"a program that sets nothing has something to take over: {unset}"
logging.getLogger("tensorflow").setLevel(logging.ERROR)

keras.config.set_floatx("float64")
keras.config.set_dtype_policy("mixed_bfloat16")
keras.config.set_image_data_format("channels_first")
keras.config.set_epsilon(1e-3)
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
tf.config.run_functions_eagerly(True)
tf.config.set_soft_device_placement(False)
tf.config.optimizer.set_experimental_options({"constant_folding": False})
tf.debugging.enable_check_numerics()
keras.config.enable_unsafe_deserialization()
sklearn.set_config(transform_output="pandas", assume_finite=True)
pandas.set_option("mode.sim_interactive", True)
pandas.set_option("display.float_format", lambda number: f"{number:.1f}")
xgboost.set_config(verbosity=0)
numpy.seterr(divide="raise")
numpy.set_printoptions(precision=3)
scipy.special.seterr(singular="raise")
warnings.simplefilter("ignore", RuntimeWarning)
csv.field_size_limit(2**20)
decimal.getcontext().prec = 50
decimal.getcontext().traps[decimal.Inexact] = True
locale.setlocale(locale.LC_NUMERIC, "C.UTF-8")
multiprocessing.set_start_method("spawn")
sys.setrecursionlimit(5000)
sys.path.append("/opt")

def has_numerics():
    try:
        tf.math.log(tf.zeros(1))
    except tf.errors.InvalidArgumentError:
        return True

def train(lr):
    layer = keras.layers.Dense(2)
    layer.build((None, 2))
    inner = keras.layers.Dense(2, dtype="float32")
    numbers = {
        "floatx": keras.config.floatx() == "float64",
        "policy": layer.compute_dtype == "bfloat16",
        "own_policy": inner.compute_dtype == "float32",
        "format": keras.config.image_data_format() == "channels_first",
        "epsilon": keras.config.epsilon(),
        "x64": jax.config.jax_enable_x64,
        "strict": jax.config.jax_numpy_dtype_promotion.value == "strict",
        "eager": tf.config.functions_run_eagerly(),
        "folding": tf.config.optimizer.get_experimental_options().get("constant_folding", True),
        "numerics": has_numerics(),
        "unsafe": keras.src.saving.serialization_lib.in_safe_mode() is False,
        "hard": not tf.config.get_soft_device_placement(),
        "pandas": sklearn.get_config()["transform_output"] == "pandas",
        "finite": sklearn.get_config()["assume_finite"],
        "interactive": pandas.get_option("mode.sim_interactive"),
        "printed_frame": "0.1" in str(pandas.DataFrame({"x": [0.123]})),
        "verbosity": xgboost.get_config()["verbosity"],
        "raise": numpy.geterr()["divide"] == "raise",
        "printed": numpy.get_printoptions()["precision"],
        "singular": scipy.special.geterr()["singular"] == "raise",
        "ignored": any(entry[::2] == ("ignore", RuntimeWarning, 0) for entry in warnings.filters),
        "fields": csv.field_size_limit(),
        "prec": decimal.getcontext().prec,
        "trap": decimal.getcontext().traps[decimal.Inexact],
        "locale": locale.setlocale(locale.LC_NUMERIC) == "C.UTF-8",
        "spawn": multiprocessing.get_start_method() == "spawn",
        "recursion": sys.getrecursionlimit(),
        "path": "/opt" in sys.path,
        "logger": logging.getLogger("tensorflow").level,
    }
    keras.config.set_dtype_policy("float32")  # of the function, which is later
    numbers["later"] = keras.layers.Dense(2).compute_dtype == "float32"
    return {"loss": lr, **{name: float(value or 0) for name, value in numbers.items()}}

if __name__ == "__main__":
    compare(train)
"""


KINDS = """
import decimal, json, tempfile
import numpy, optuna, sklearn
import sparktrain as st
from sklearn.base import BaseEstimator, ClassifierMixin

sklearn.set_config(transform_output="pandas")
decimal.getcontext().prec = 50

def settings():
    return 100.0 * decimal.getcontext().prec + (sklearn.get_config()["transform_output"] == "pandas")

def train(lr, ctx):
    return {"loss": settings() if ctx.size == 2 else 0.0}

def objective(trial):
    return settings() + trial.suggest_int("x", 0, 0)

class Model(ClassifierMixin, BaseEstimator):
    def __init__(self, c=1):
        self.c = c

    def fit(self, X, y):
        self.classes_ = numpy.unique(y)
        return self

    def score(self, X, y):
        return settings()

if __name__ == "__main__":
    common = {"dir": tempfile.mkdtemp(), "progress": False}
    with st.pool(st.local(slots=2), preload=["sklearn"]) as common["pool"]:
        gang = common["pool"].run(train, {"lr": 1.0}, workers=2, backend="none", name="gang", dir=common["dir"])
        study = optuna.create_study()
        st.optuna.optimize(study, objective, 1, name="study", **common)
        rows = numpy.arange(8.0)[:, None], numpy.array([0, 1] * 4)
        search = st.sklearn.search_cv(Model(), {"c": [1]}, *rows, cv=2, refit=False, name="search", **common)
    print(json.dumps([gang.metrics["loss"], study.best_value, search.best_score_]))
"""


def run(folder: Path, program: str, *arguments: str, **variables: str) -> str:
    """The last line that a script of this program prints."""
    script = folder / "script.py"
    script.write_text(program)
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [root, variables.pop("PYTHONPATH", "")]))
    ended = subprocess.run(
        [sys.executable, script, *arguments],
        env={**os.environ, "PYTHONPATH": path, **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()[-1]


def compared(folder: Path, program: str, *arguments: str, **variables: str) -> dict[str, Any]:
    """What `compare` prints in a script of this program."""
    values: dict[str, Any] = json.loads(run(folder, START + textwrap.dedent(program), *arguments, **variables))
    return values


def test_settings_of_libraries_and_none_where_a_program_sets_nothing(tmp_path: Path) -> None:
    values = compared(tmp_path, SETTINGS)
    assert values["trial"] == values["script"]


@pytest.mark.torch
def test_settings_of_torch(tmp_path: Path) -> None:
    values = compared(
        tmp_path,
        """
        import torch

        torch.set_default_dtype(torch.float64)
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.set_float32_matmul_precision("medium")
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.enable_flash_sdp(False)

        def train(lr):
            flags = torch.backends.cudnn.benchmark, torch.is_deterministic_algorithms_warn_only_enabled()
            precision = torch.zeros(1).dtype.itemsize, torch.get_float32_matmul_precision() == "medium"
            return {"loss": sum(10.0**place * part for place, part in enumerate((*flags, *precision))),
                "flash": torch.backends.cuda.flash_sdp_enabled() + 0.0}

        if __name__ == "__main__":
            compare(train)
        """,
    )
    assert values["trial"] == values["script"] == {"loss": 1811.0, "flash": 0.0}


def test_each_kind_of_call_takes_them_over(tmp_path: Path) -> None:
    assert json.loads(run(tmp_path, KINDS)) == [5001.0] * 3


def test_logging_and_flags(tmp_path: Path) -> None:
    values = compared(
        tmp_path,
        """
        import enum, logging
        from absl import flags

        class Mode(enum.Enum):
            FAST = 1
            EXACT = 2

        logging.basicConfig(level=logging.INFO, format="<%(levelname)s %(name)s> %(message)s")
        log = logging.getLogger("vision")
        log.setLevel(logging.DEBUG)
        RATE = flags.DEFINE_float("rate", 2.0, "a rate")
        flags.DEFINE_list("names", ["a"], "names")
        flags.DEFINE_enum_class("mode", Mode.FAST, Mode, "how")
        FLAGS = flags.FLAGS

        def train(lr):
            log.debug("a detail")
            logging.getLogger("other").info("a fact")
            logging.getLogger("other").debug("nothing")
            return {"loss": RATE.value * FLAGS.rate, "names": len(FLAGS.names), "exact": FLAGS.mode.value}

        if __name__ == "__main__":
            FLAGS(sys.argv)
            compare(train)
        """,
        "--rate=5",
        "--names=x,y",
        "--mode=exact",
    )
    assert values["trial"] == values["script"] == {"loss": 25.0, "names": 2, "exact": 2}
    assert values["log"].splitlines() == ["<DEBUG vision> a detail", "<INFO other> a fact"]


def test_objects_and_modules(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "acme_rates"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("RATE = 0.1\n")
    (package / "config.py").write_text("class Settings:\n    lr = 0.1\ncfg = Settings()\ncfg.lr = 0.2\n")
    (tmp_path / "beside.py").write_text("SCALE = 1\ndef scaled(x):\n    return x * SCALE\n")
    values = compared(
        tmp_path,
        """
        import acme_rates, beside
        from acme_rates.config import cfg

        cfg.lr = 5.0
        acme_rates.RATE = 7
        beside.SCALE = 3

        def train(lr):
            return {"loss": cfg.lr, "rate": acme_rates.RATE, "scaled": beside.scaled(1.0)}

        if __name__ == "__main__":
            compare(train)
        """,
        PYTHONPATH=str(tmp_path / "site-packages"),
    )
    assert values["trial"] == values["script"] == {"loss": 5.0, "rate": 7, "scaled": 3.0}
