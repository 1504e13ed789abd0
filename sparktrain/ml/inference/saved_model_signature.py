"""What a SavedModel takes and gives, read from its `saved_model.pb` without TensorFlow. Pure."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from sparktrain.config.param_values import did_you_mean
from sparktrain.datasets.example_layout import fields_of, varints
from sparktrain.errors import DataError, SpecError
from sparktrain.ml.inference.model_signature import ModelSignature, TensorField

SERVING = "serving_default"
_INTERNAL = "__saved_model_init_op"
_DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 9: "int64", 10: "bool",
    14: "bfloat16", 17: "uint16", 19: "float16", 22: "uint32", 23: "uint64",
}  # fmt: skip
"""The values of TensorFlow's `DataType` that columns of Spark can hold."""


class GraphSignatures(Struct, frozen=True):
    """The signatures of one graph of a SavedModel."""

    tags: tuple[str, ...]
    signatures: dict[str, tuple[dict[str, bytes], dict[str, bytes]]]
    """Inputs and outputs of each, by name, not yet read."""


def graphs_in(content: bytes, url: str) -> tuple[GraphSignatures, ...]:
    """The graphs in the bytes of `saved_model.pb`. Raises DataError for bytes that are none."""
    try:
        graphs = tuple(_graph(data) for number, data in fields_of(content) if number == 2)
    except (ValueError, IndexError, KeyError, UnicodeDecodeError) as error:
        raise DataError(
            f"{url} is no SavedModel of TensorFlow ({error}): write it with model.export(folder)"
        ) from error
    if not graphs:
        raise DataError(f"{url} has no graph: write it with model.export(folder)")
    return graphs


class FoundSignature(Struct, frozen=True):
    """One signature of a SavedModel."""

    tags: tuple[str, ...]
    key: str
    subject: str
    """For messages."""
    inputs: dict[str, bytes]
    outputs: dict[str, bytes]

    def model_signature(self, names: Sequence[str]) -> ModelSignature:
        """All inputs, and the outputs of these names, in that order. Raises DataError for what no column can be."""
        return ModelSignature(
            tuple(_field(name, self.inputs[name], f"input {name!r} of {self.subject}") for name in self.inputs),
            tuple(_field(name, self.outputs[name], f"output {name!r} of {self.subject}") for name in names),
        )


def signature_of(graphs: tuple[GraphSignatures, ...], tag_set: str | None, key: str | None, url: str) -> FoundSignature:
    """A signature by its name, `serving_default` by default, in the graph with these comma-separated tags.

    `tag_set` may be None where there is one graph. Raises SpecError for what the model lacks.
    """
    tags = None if tag_set is None else {tag.strip() for tag in tag_set.split(",")}
    matches = [graph for graph in graphs if tags is None or set(graph.tags) == tags]
    if len(matches) != 1:
        listing = ", ".join(repr(",".join(graph.tags)) for graph in graphs)
        raise SpecError(f"tag_set is {tag_set!r}, and the model {url} has the graphs {listing}: pass one of these")
    key = key or SERVING
    # TensorFlow saves this one beside the signatures of the user, for its own initialization.
    named = {name: pair for name, pair in matches[0].signatures.items() if name != _INTERNAL}
    if key not in named:
        raise SpecError(
            f"signature_def_key is {key!r}, and the model {url} has the signatures "
            f"{', '.join(map(repr, named)) or 'none'}{did_you_mean(key, named)}"
        )
    inputs, outputs = (dict(sorted(fields.items())) for fields in named[key])
    return FoundSignature(matches[0].tags, key, f"signature {key!r} of {url}", inputs, outputs)


def _graph(data: bytes) -> GraphSignatures:
    fields = fields_of(data)
    tags = [tag for number, meta in fields if number == 1 for key, tag in fields_of(meta) if key == 4]
    return GraphSignatures(
        tuple(sorted(tag.decode() for tag in tags)),
        {
            name: (dict(_entries(signature, 1)), dict(_entries(signature, 2)))
            for name, signature in _entries(data, 5)
        },
    )  # fmt: skip


def _entries(data: bytes, field_number: int) -> Iterator[tuple[str, bytes]]:
    """The entries of a map with names as keys."""
    for number, entry in fields_of(data):
        if number == field_number:
            pair = dict(fields_of(entry))
            yield pair[1].decode(), pair.get(2, b"")


def _field(name: str, data: bytes, subject: str) -> TensorField:
    """An input or output, from its `TensorInfo`."""
    info = dict(fields_of(data))
    number = int(varints(info.get(2, b"\0"))[0])
    dtype = _DTYPES.get(number)
    if dtype is None or 1 not in info:
        raise DataError(f"{subject} is no plain tensor (type {number}), which no column of Spark is")
    shape = fields_of(info.get(3, b""))
    sizes = [_size(dimension) for place, dimension in shape if place == 2]
    if any(place == 3 for place, _ in shape) or not sizes:
        raise DataError(
            f"{subject} has no row for each row of the data (shape {sizes or 'unknown'}): export a "
            "signature with tf.TensorSpec((None, ...)) for its inputs"
        )
    return TensorField(name, tuple(size if size >= 0 else None for size in sizes[1:]), dtype)


def _size(dimension: bytes) -> int:
    """The size of a dimension; -1 for any."""
    content = dict(fields_of(dimension)).get(1, b"\0")
    return int(varints(content)[0])
