"""Imports Optuna without a word about a progress bar that is never shown.

In a notebook without ipywidgets tqdm, which Optuna imports, shows a red box (`TqdmWarning: IProgress not found`) in the
output of the first cell that samples or draws. Optuna's progress bar is that of `study.optimize` alone.
"""

import sys
import warnings
from importlib import import_module


def import_optuna() -> None:
    """Import Optuna for all later imports of its parts. Raises ImportError where it is not installed."""
    if "optuna" in sys.modules:
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="IProgress not found")
        import_module("optuna")
