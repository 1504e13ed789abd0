"""Keeps a finished model: Keras models as `model.keras`, others in their own format, beneath the files of the member.

A library is imported only when the model is one of its objects. `runs.exported_model` finds and loads the files.
"""

import gzip
import hashlib
import importlib
import os
import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import cloudpickle
import msgspec

from sparktrain.base.model_kinds import named_kind
from sparktrain.errors import SpecError
from sparktrain.rundir.layout import EXPORTED, MODEL, ExportedModel
from sparktrain.store.folder_removal import remove
from sparktrain.training.frameworks.imported import from_framework

_KERAS = ("keras", "tf_keras", "tensorflow")
CAN = (
    "a Keras model, a module or a program of PyTorch, an estimator of scikit-learn, a model of XGBoost or LightGBM, or "
    "the path of a file or folder that the function has written"
)
"""What can be exported, for messages."""

Save = Callable[[Any, Path], ExportedModel]


def export(model: Any, home: str | os.PathLike[str], rank: int) -> None:
    """Keep `model` beneath the folder `home` of a member, whole or not at all; the newest export counts.

    If `rank` is not 0, it returns at once. Blocks on the disk. Raises SpecError for an object that cannot be exported,
    OSError, and what the library of the model raises.
    """
    if rank:
        return
    folder = Path(home)
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(model, str | os.PathLike):
        _keep_path(Path(os.path.abspath(model)), folder)
    elif _is_of(model, _KERAS) and callable(getattr(model, "save", None)):
        _check_held(model)
        _keep_keras(folder, model.save)
    else:
        _keep(folder, lambda place: _saver_of(model)(model, place))


def export_estimator(model: Any, home: str | os.PathLike[str]) -> None:
    """Keep an estimator of any library by scikit-learn's interface, so that what is loaded is the same estimator.

    A booster of LightGBM alone would lack its classes. Blocks and raises as `export`.
    """
    folder = Path(home)
    folder.mkdir(parents=True, exist_ok=True)
    _keep(folder, lambda place: _save_estimator(model, place))


def description_digest(home: str | os.PathLike[str]) -> str:
    """The SHA-256 of the description of the model that is kept beneath `home`; empty without one, as of Keras models.

    Blocks on the disk. Raises OSError.
    """
    described = Path(home) / EXPORTED / ExportedModel.NAME
    return hashlib.sha256(described.read_bytes()).hexdigest() if described.exists() else ""


def _check_held(model: Any) -> None:
    """Raise SpecError for a Keras model on JAX that rank 0 cannot read, because members hold parts of its weights."""
    for weight in getattr(model, "weights", ()):
        held = getattr(weight, "value", None)
        is_here = getattr(held, "is_fully_replicated", True) or getattr(held, "is_fully_addressable", True)
        if not is_here:
            raise SpecError(
                f"ctx.export(): the members hold parts of {weight.path!r}, and rank 0 cannot save them alone; restore "
                "the checkpoint of ctx.keras_callbacks() in one process, which has the model whole, and export it there"
            )


def _keep_keras(folder: Path, save: Callable[[Path], object]) -> None:
    unfinished = folder / f".{uuid4().hex}.keras"  # Keras requires the suffix
    try:
        save(unfinished)
        os.replace(unfinished, folder / MODEL)
    finally:
        unfinished.unlink(missing_ok=True)
    remove(folder / EXPORTED)


def _keep(folder: Path, save: Callable[[Path], ExportedModel]) -> None:
    """Have `save` write into a folder, which takes the place of an earlier export once it is whole."""
    unfinished = folder / f".{uuid4().hex}"
    target = folder / EXPORTED
    try:
        unfinished.mkdir()
        exported_model = save(unfinished)
        (unfinished / ExportedModel.NAME).write_bytes(msgspec.json.encode(exported_model))
        remove(target)
        target.parent.mkdir(exist_ok=True)
        os.replace(unfinished, target)
    finally:
        remove(unfinished)
    (folder / MODEL).unlink(missing_ok=True)


def _keep_path(path: Path, folder: Path) -> None:
    if not path.exists():
        raise SpecError(f"ctx.export({str(path)!r}): there is no such file or folder; pass the path of one, or {CAN}")
    if path.suffix == ".keras" and path.is_file():
        _keep_keras(folder, lambda place: shutil.copyfile(path, place))
        return
    if path.is_dir() and folder.resolve().is_relative_to(path.resolve()):
        raise SpecError(
            f"ctx.export({str(path)!r}): this folder contains the folder of the trial itself; export a folder that has "
            "the model alone"
        )
    _keep(folder, lambda place: _copied(path, place))


def _copied(path: Path, place: Path) -> ExportedModel:
    name = "file" if path.name == ExportedModel.NAME else path.name
    if path.is_dir():
        shutil.copytree(path, place / name)
    else:
        shutil.copyfile(path, place / name)
    return ExportedModel(kind="path", file=name)


def _saver_of(model: Any) -> Save:
    """What saves the model. Raises SpecError."""
    for packages, save in _SAVERS.items():
        # A layer of Keras on PyTorch is a module of that, too, and would lose its configuration as one.
        if _is_of(model, packages) and not _is_of(model, _KERAS):
            return save
    raise SpecError(f"ctx.export() is given {named_kind(model)}; pass {CAN}")


def _is_of(model: Any, packages: tuple[str, ...]) -> bool:
    """Whether a class of the object, or one that it inherits from, belongs to one of the packages."""
    return any(base.__module__.partition(".")[0] in packages for base in type(model).__mro__)


def _version(package: str) -> str:
    return str(getattr(sys.modules.get(package), "__version__", ""))


def _class_in(model: Any, package: str) -> str:
    """The name of the innermost class of the package that the object is of: a class of the user may inherit from it."""
    return next(base.__name__ for base in type(model).__mro__ if base.__module__.partition(".")[0] == package)


def _save_xgboost(model: Any, place: Path) -> ExportedModel:
    model.save_model(str(place / "model.ubj"))
    kind = "xgboost"
    return ExportedModel(kind=kind, file="model.ubj", of=_class_in(model, kind), version=_version(kind))


def _save_lightgbm(model: Any, place: Path) -> ExportedModel:
    booster = getattr(model, "booster_", model)  # of its estimators
    booster.save_model(str(place / "model.txt"))
    kind = "lightgbm"
    return ExportedModel(kind=kind, file="model.txt", of=_class_in(model, kind), version=_version(kind))


def _save_estimator(model: Any, place: Path) -> ExportedModel:
    """By skops where it is installed and reads what it has written; else as a pickle.

    Raises SpecError for an estimator that neither can write and read.
    """
    if find_spec("skops") is not None:
        try:
            return _described(model, "skops", place / "model.skops", _write_skops(model, place / "model.skops"))
        except Exception:  # it has no common error for objects that it cannot write
            (place / "model.skops").unlink(missing_ok=True)
    try:
        _write_pickle(model, place / "model.joblib")
    except Exception as error:  # objects of the user may raise anything
        raise SpecError(
            f"ctx.export(): {named_kind(model)} cannot be stored and loaded again ({type(error).__name__}: "
            f"{' '.join(str(error).split())}): let its attributes be without what cannot be pickled, such as open files"
        ) from error
    return _described(model, "joblib", place / "model.joblib")


def _write_skops(model: Any, file: Path) -> tuple[str, ...]:
    """Write a file of skops; returns its types that skops does not trust. Raises what skops raises, and LookupError."""
    skops = importlib.import_module("skops.io")
    skops.dump(model, file)
    types = tuple(skops.get_untrusted_types(file=file))
    # The file has names alone: where it is loaded, the script is another one.
    if of_script := [name for name in types if name.startswith(("__main__.", "__mp_main__."))]:
        raise LookupError(f"{of_script[0]} is of the script")
    skops.load(file, trusted=list(types))
    return types


def _write_pickle(model: Any, file: Path) -> None:
    """Write what joblib loads, with the code of what the script defines. Raises what the objects of the user raise."""
    # By plain cloudpickle, for a server of models may have no sparktrain.
    with gzip.open(file, "wb", compresslevel=3) as packed:
        cloudpickle.dump(model, packed)
    importlib.import_module("joblib").load(file)


def _described(model: Any, kind: str, file: Path, types: tuple[str, ...] = ()) -> ExportedModel:
    with file.open("rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    name = type(model).__name__
    return ExportedModel(kind=kind, file=file.name, of=name, version=_version("sklearn"), sha256=sha256, types=types)


_SAVERS: dict[tuple[str, ...], Save] = {
    ("xgboost",): _save_xgboost,
    ("lightgbm",): _save_lightgbm,
    ("sklearn", "imblearn"): _save_estimator,
    ("torch",): lambda model, place: from_framework("save_torch")(model, place),
}
"""In this order: estimators of XGBoost and LightGBM inherit from those of scikit-learn."""
