"""The model that a member has exported: found in its run directory, and loaded by the library that it is of."""

import atexit
import hashlib
import importlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from sparktrain.base.decoding import from_json
from sparktrain.base.ids import Member
from sparktrain.base.model_kinds import named_kind
from sparktrain.errors import RunDirectoryError, SpecError
from sparktrain.rundir.layout import ExportedModel, MemberLayout, RunLayout
from sparktrain.store.base import Store
from sparktrain.store.held_folders import hold

_PROCESS = re.compile(r"rank-(\d+)-restart-(\d+)/")

KERAS = "keras"
PATH = "path"


class StoredModel(NamedTuple):
    """An exported model in its store."""

    kind: str
    """`keras`, or that of `ExportedModel`."""
    path: str
    """Of the file, or of the folder."""
    of: str = ""
    """The name of its class."""
    version: str = ""
    """Of its library, where it was exported."""
    proven: ExportedModel | None = None
    """Its description, if that is the one that the run has a record of."""


Load = Callable[[str, StoredModel, Mapping[str, Any]], Any]


def newest_process(store: Store, layout: RunLayout, member: Member) -> MemberLayout:
    """The files of the newest process of `member`, which may have been lost and restarted alone. Blocks.

    Raises OSError.
    """
    names = store.entries(layout.members(member.trial, member.generation))
    processes = [(int(match[1]), int(match[2])) for match in map(_PROCESS.fullmatch, names) if match is not None]
    newest = max((incarnation for rank, incarnation in processes if rank == member.rank), default=0)
    return layout.member(replace(member, incarnation=newest))


def find_model(store: Store, member: MemberLayout, record: str = "") -> StoredModel | None:
    """The model of the member; None when it exported none. `record` is `TrialResult.exported`. Blocks.

    Raises OSError, and RunDirectoryError for a description that is corrupt, or not that of the record, or gone.
    """
    described = f"{member.exported}/{ExportedModel.NAME}"
    if not record and store.exists(member.model):
        return StoredModel(KERAS, member.model)
    if not store.exists(described):
        if record:
            raise RunDirectoryError(_gone(store.where(described)))
        return None
    content = store.read(described)
    if record and hashlib.sha256(content).hexdigest() != record:
        raise RunDirectoryError(_changed(store.where(described)))
    try:
        description = from_json(content, ExportedModel)
    except msgspec.MsgspecError as error:
        raise RunDirectoryError(f"{store.where(described)} describes no exported model ({error})") from error
    # The file comes from a training process: a path in it could lead to any file of the store.
    if "/" in description.file or description.file in ("", ".", ".."):
        raise RunDirectoryError(f"{store.where(described)} names a file outside of its folder: {description.file!r}")
    path = f"{member.exported}/{description.file}"
    proven = description if record else None
    return StoredModel(description.kind, path, description.of, description.version, proven)


def _changed(path: str) -> str:
    return (
        f"{path} is not what the trial has exported: its SHA-256 differs from that in the record of the run, so it was "
        "changed since, or is corrupt; restore the file from a copy, or train the trial again"
    )


def _gone(path: str) -> str:
    return f"{path} is gone, which the trial has exported: restore the file from a copy, or train the trial again"


@contextmanager
def local_copy(store: Store, model: StoredModel) -> Iterator[Path]:
    """A copy on the local disk, which is deleted at the end of the block; that of a path when this process ends.

    Blocks on the store and the disk. Raises OSError, and RunDirectoryError where it is gone.
    """
    folder = hold("model")
    stays = False
    try:
        yield _fetched(store, model.path, folder.path)
        stays = model.kind == PATH
    finally:
        if stays:
            atexit.register(folder.close)
        else:
            folder.close()


def load_other(path: Path, model: StoredModel, options: Mapping[str, Any]) -> Any:
    """The model in this file, which is none of Keras, in this process; of a path of the user the path itself.

    Blocks on the disk. Raises SpecError for a library that is not installed here, and for types without trust;
    RunDirectoryError for an unknown kind, and for a file that was changed since; and what the library raises.
    """
    if model.kind == PATH:
        return path
    if (loader := _LOADERS.get(model.kind)) is None:
        raise RunDirectoryError(
            f"the model {model.path} is of kind {model.kind!r}, which this sparktrain does not know: use the one that "
            "exported it"
        )
    if model.proven is not None and model.proven.sha256:
        with path.open("rb") as content:
            sha256 = hashlib.file_digest(content, "sha256").hexdigest()
        if sha256 != model.proven.sha256:
            raise RunDirectoryError(_changed(model.path))
    return loader(str(path), model, options)


def _fetched(store: Store, path: str, folder: Path) -> Path:
    """A local copy of a file, or of all files of a folder."""
    name = path.rpartition("/")[2]
    files = [path] if store.exists(path) else []
    sources = files or store.list(path)
    if not sources:
        raise RunDirectoryError(_gone(store.where(path)))
    for source in sources:
        target = folder / name / source[len(path) + 1 :] if not files else folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            for piece in store.pieces(source):
                file.write(piece)
    return folder / name


def _skops(path: str, model: StoredModel, options: Mapping[str, Any]) -> Any:
    skops = _library("skops.io", model)
    trusts = options.get("trusted")
    if callable(trusts):
        options = {**options, "trusted": [name for name in skops.get_untrusted_types(file=path) if trusts(name)]}
    elif trusts is None:
        types = skops.get_untrusted_types(file=path)
        recorded = () if model.proven is None else model.proven.types
        if unknown := [name for name in types if name not in recorded]:
            step = f"if you trust the file, call load_model(trusted={types})"
            if any(name.startswith("__main__.") for name in unknown):  # the file lacks their code
                step += " in a program that defines those of __main__, or train again, which stores their code too"
            raise SpecError(
                f"the model {model.path} has the types {', '.join(unknown)}, which neither skops trusts nor the record "
                f"of the run, which a run of an older sparktrain lacks: {step}"
            )
        options = {**options, "trusted": types}
    return skops.load(path, **options)


def _joblib(path: str, model: StoredModel, options: Mapping[str, Any]) -> Any:
    return _library("joblib", model).load(path, **options)


def _xgboost(path: str, model: StoredModel, options: Mapping[str, Any]) -> Any:
    xgboost = _library("xgboost", model)
    kind = getattr(xgboost, model.of, None)
    predictor = (kind if isinstance(kind, type) and hasattr(kind, "load_model") else xgboost.Booster)(**options)
    predictor.load_model(path)
    return predictor


def _lightgbm(path: str, model: StoredModel, options: Mapping[str, Any]) -> Any:
    return _library("lightgbm", model).Booster(model_file=path, **options)


def _torch(path: str, model: StoredModel, options: Mapping[str, Any]) -> Any:
    _library("torch", model)
    return _weights(_library("safetensors.torch", model).load_file(path), model, **options)


def _weights(tensors: dict[str, Any], model: StoredModel, *, module: Any = None) -> Any:
    """The tensors by name; with `module`, that module with them, ready to predict."""
    if module is None:
        return tensors
    if not callable(getattr(module, "load_state_dict", None)):
        raise SpecError(
            f"load_model(module=...) got {named_kind(module)}, and the stored weights are those of {model.of}, a model "
            "of PyTorch: build that and pass it, or call load_model() for the tensors"
        )
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:  # it lists each weight that differs
        raise SpecError(
            f"the stored weights of {model.of} do not fit load_model(module={type(module).__name__}()): {error}; "
            "build it as the training function did, or call load_model() for the tensors"
        ) from error
    return module.eval()


def _torch_program(path: str, model: StoredModel, options: Mapping[str, Any]) -> Any:
    return _library("torch", model).export.load(path, **options)


def _torchscript(path: str, model: StoredModel, options: Mapping[str, Any]) -> Any:
    return _library("torch", model).jit.load(path, **options)


def _library(name: str, model: StoredModel) -> Any:
    """The module. Raises SpecError where its package is not installed."""
    package = name.partition(".")[0]
    if find_spec(package) is None:
        raise SpecError(
            f"the model ({model.of}) needs the package {package}, which is not installed on host "
            f"{os.uname().nodename}: install it there; the model was exported with version "
            f"{model.version or 'unknown'} of its library"
        )
    return importlib.import_module(name)


_LOADERS: dict[str, Load] = {
    "skops": _skops,
    "joblib": _joblib,
    "xgboost": _xgboost,
    "lightgbm": _lightgbm,
    "torch": _torch,
    "torch-program": _torch_program,
    "torchscript": _torchscript,
}
