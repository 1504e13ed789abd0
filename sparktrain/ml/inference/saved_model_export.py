"""Exports a Keras model as a SavedModel, into any store. Imports TensorFlow when it is used."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import SpecError
from sparktrain.ml.inference.loaded_model import input_structure
from sparktrain.store.base import PIECE_BYTES, Store
from sparktrain.store.held_folders import held
from sparktrain.store.url import open_store

GRAPH = "saved_model.pb"
"""The file that makes a folder a SavedModel: in a store it is written last."""
ENDPOINT = "serve"
"""Keras adds `serving_default`, which is the same."""
_UNNAMED = "keras_tensor"


def export(model: Any, target: str) -> None:
    """Export a built model to the folder `target`, a path or a URL; files of an earlier export there are replaced.

    The names of inputs and outputs are those of Keras 2. Blocks on the store. Raises SpecError for a model without
    fixed inputs, OSError when the store fails.
    """
    parts = urlsplit(target)
    if not parts.scheme or parts.scheme == "file":
        _write(model, unquote(parts.path) if parts.scheme else os.path.expanduser(target))
        return
    with held("export") as folder:
        exported = folder / "model"
        _write(model, str(exported))
        _upload(exported, open_store(StoreAddress(target)))


def input_names(model: Any) -> list[str]:
    """The names of the inputs as Keras 2 gave them, where the program has given none."""
    import keras

    names = [str(tensor.name) for tensor in model.inputs]
    name_flags = [not name.startswith(_UNNAMED) for name in names]
    if len(names) == 1 and not name_flags[0] and isinstance(model, keras.Sequential):
        return [f"{model.layers[0].name}_input"]
    return [
        name if is_named else f"input_{number}"
        for number, (name, is_named) in enumerate(zip(names, name_flags, strict=True), 1)
    ]


def output_names(model: Any) -> list[str]:
    """The names of the layers that give the outputs, with a number where one gives several."""
    names = list(getattr(model, "output_names", ()) or ())
    if not names:  # of a Sequential model that is not functional
        names = [model.layers[-1].name]
    return list(_numbered(names))


def _numbered(names: Sequence[str]) -> Iterator[str]:
    for place, name in enumerate(names):
        repeats = names[:place].count(name)
        yield f"{name}_{repeats}" if repeats else name


def _write(model: Any, folder: str) -> None:
    import keras
    import tensorflow as tf

    if not getattr(model, "inputs", None):
        raise SpecError(
            f"the model ({type(model).__name__}) has no fixed inputs, so it cannot be exported: call fit() or "
            "model.build(input_shape) first, or wrap it in keras.Model(x, model(x)) with x = keras.Input(...)"
        )
    structure = input_structure(model)
    outputs = output_names(model)
    specs = [
        tf.TensorSpec((None, *tensor.shape[1:]), tensor.dtype, name=name)
        for tensor, name in zip(model.inputs, input_names(model), strict=True)
    ]

    def call(*tensors: Any) -> dict[str, Any]:
        packed = tensors[0] if structure is None else keras.tree.pack_sequence_as(structure, list(tensors))
        results = keras.tree.flatten(model(packed, training=False))
        names = outputs if len(outputs) == len(results) else [f"output_{number}" for number in range(len(results))]
        return dict(zip(names, results, strict=True))

    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint(ENDPOINT, call, input_signature=specs)
    archive.write_out(folder, verbose=False)


def _upload(folder: Path, store: Store) -> None:
    """Put the files of a SavedModel into the store, so that one with all files is there or none."""
    store.delete(GRAPH)
    paths = sorted(entry for entry in folder.rglob("*") if entry.is_file())
    for path in sorted(paths, key=lambda path: path.name == GRAPH):
        name = path.relative_to(folder).as_posix()
        store.delete(name)
        with path.open("rb") as source:
            file = store.create(name)
            try:
                while piece := source.read(PIECE_BYTES):
                    file.write(piece)
                file.publish()
            finally:
                file.discard()
