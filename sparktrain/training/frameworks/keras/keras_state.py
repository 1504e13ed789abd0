"""The state of a Keras model for checkpoints: see `sparktrain.training.frameworks.contract.Framework.state`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sparktrain.base.model_kinds import named_kind
from sparktrain.config.environment import TENSORFLOW
from sparktrain.errors import UserError
from sparktrain.training.checkpoint.retention import Retention
from sparktrain.training.checkpoint.tensor_files import Array, TensorFiles, source_rank
from sparktrain.training.checkpoint.tensor_slices import TensorSlice
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.data.feed_cursors import cursor_of
from sparktrain.training.data.position import Cursor
from sparktrain.training.frameworks.keras import consistency, model_state
from sparktrain.training.frameworks.keras.keras_framework import backend_in_use
from sparktrain.training.frameworks.keras.spread_model import is_spread
from sparktrain.training.notices import issued_notices, notice

_VARIABLES = "variables"
_FEEDS = "feeds"


def captured(parts: Sequence[Any], spare: Mapping[str, Array]) -> tuple[dict[str, Any], dict[str, Array]]:
    """The specs of all variables of a built model, and copies of them and of Keras's generator, in `spare` if they fit.

    It has all variables of the model, of its optimizer (learning rate, slots, iterations, loss scale) and of its
    metrics, and the states of the seed generators of its layers and of Keras's global one. It cannot have:
    `tf.random.Generator` objects, the counters of TensorFlow's stateful random operations, iterators, callbacks.
    Raises UserError when the model is not built, and TypeError for several.
    """
    return _captured(parts, lambda name, variable: model_state.value(variable, spare.get(name)))


def retained(parts: Sequence[Any], spare: Mapping[str, Array]) -> tuple[dict[str, Any], dict[str, Array], Retention]:
    """As `captured`, but with TensorFlow's own memory: its updates copy a buffer that is referenced before they write.

    The other backends may write in place, and have copies.
    """
    if backend_in_use() != TENSORFLOW:
        return *captured(parts, spare), Retention()
    return *_captured(parts, lambda name, variable: model_state.view(variable)), Retention()


def is_split(parts: Sequence[Any]) -> bool:
    """Whether members hold parts of variables of the model, as with `keras.distribution.ModelParallel`.

    False for one that is not built.
    """
    model = _model(parts)
    return bool(is_spread() and model.built and any(map(model_state.is_split, model_state.named(model).values())))


def captured_part(
    parts: Sequence[Any], spare: Mapping[str, Array], rank: int
) -> tuple[dict[str, Any], dict[str, Array], list[TensorSlice]]:
    """As `captured`, of the slices that the member `rank` writes; rank 0 also has everything that is not split."""
    model = _model(parts)
    variables = model_state.named(model)
    copies, slices = model_state.part_of(variables, spare, rank)
    if not rank and (seed := model_state.global_seed()) is not None:
        copies[model_state.GLOBAL_SEED] = seed
    return {_VARIABLES: _specs(variables)}, copies, slices


def assign(
    parts: Sequence[Any],
    files: TensorFiles,
    document: Mapping[str, Any],
    place: tuple[int, int],
    *,
    alike: bool = False,
) -> None:
    """Give the model the state in `files`; a rank other than theirs keeps the seeds of Keras's generators.

    Raises UserError, with nothing changed, when it is of another model.
    """
    model = _model(parts)
    if document.get(_VARIABLES) is None:
        raise UserError(
            f"the checkpoint of step {document['step']} was saved without a Keras model, and restore() got "
            f"{named_kind(model)}: pass what save() got, or have it save(step, model)"
        )
    model_state.assign(model_state.named(model), files, document["step"], *place)
    # A checkpoint in the store has none: there a loop starts its epoch from the first batch.
    for cursor, place_of_feed in zip(_cursors(parts), document.get(_FEEDS, []), strict=False):
        cursor.continue_loop(*place_of_feed)
    if model_state.GLOBAL_SEED in files:
        keep_seed = place[0] != source_rank(document)
        model_state.assign_global_seed(files.read(model_state.GLOBAL_SEED), keep_seed=keep_seed)


def assign_metrics(parts: Sequence[Any], files: TensorFiles, place: tuple[int, int]) -> bool:
    """Set the model's metrics to their values in `files`; False, without a change, if these have other metrics."""
    if files.document.get(_VARIABLES) is None:
        return False
    return model_state.assign_metrics(model_state.named(_model(parts)), files, *place)


def of_chief(parts: Sequence[Any]) -> dict[str, Array]:
    """Copies of the states of Keras's generators."""
    seeds = {
        name: model_state.value(state)
        for name, state in model_state.named(_model(parts)).items()
        if name.startswith(model_state.SEEDS)
    }
    if (seed := model_state.global_seed()) is not None:
        seeds[model_state.GLOBAL_SEED] = seed
    return seeds


def own(parts: Sequence[Any]) -> dict[str, Array]:
    """Copies of the statistics of layers, and of the metrics; none where XLA keeps them in step."""
    if is_spread():
        return {}
    variables = model_state.member_variables(_model(parts))
    return {name: model_state.value(variable) for name, variable in variables.items()}


def with_members(arrays: Mapping[str, Array], members: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """See `model_state.with_members`."""
    return model_state.with_members(arrays, members)


def are_equal(parts: Sequence[Any]) -> bool:
    """Whether this member has made no steps by itself since the newest average of `local_steps`."""
    from sparktrain.training.frameworks.keras.distributed_apply import is_averaged

    return bool(is_averaged(_model(parts)))


def check_equal(ring: Ring, parts: Sequence[Any]) -> None:
    """See `consistency.check_equal`."""
    consistency.check_equal(ring, _model(parts))


def _captured(parts: Sequence[Any], array_of: Callable[[str, Any], Array]) -> tuple[dict[str, Any], dict[str, Array]]:
    """What `captured` returns, with an array for each variable from `array_of`, which gets its name too."""
    model = _model(parts)
    _notice_own_steps(parts)
    variables = model_state.named(model)
    arrays = {name: array_of(name, variable) for name, variable in variables.items()}
    if (seed := model_state.global_seed()) is not None:
        arrays[model_state.GLOBAL_SEED] = seed
    cursors = list(_cursors(parts))
    feeds = {_FEEDS: [cursor.loop_place() for cursor in cursors]} if cursors else {}
    return {_VARIABLES: _specs(variables), **feeds}, arrays


def _specs(variables: Mapping[str, Any]) -> dict[str, str]:
    return {name: model_state.spec(variable) for name, variable in variables.items()}


def _notice_own_steps(parts: Sequence[Any]) -> None:
    text = (
        "a checkpoint was saved between two averages of local_steps, with the chief's weights alone: in a loop of your "
        "own save after a multiple of local_steps"
    )
    if not are_equal(parts) and text not in issued_notices():
        notice(text)


def _model(parts: Sequence[Any]) -> Any:
    models = [part for part in parts if cursor_of(part) is None]
    if len(models) != 1:
        raise TypeError(
            f"ctx.checkpoint got {len(models)} models of Keras ({', '.join(type(part).__name__ for part in models)}), "
            "and saves one with its optimizer: make one model that contains them, or pass the weights of others by name"
        )
    return models[0]


def _cursors(parts: Sequence[Any]) -> Iterator[Cursor]:
    """The positions of the feeds among `parts`."""
    return (cursor for part in parts if (cursor := cursor_of(part)) is not None)
