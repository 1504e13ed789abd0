"""What distinguishes a call of `fit` from the others of its function, so that none resumes the training of another."""

import sys
import traceback
import zlib
from collections.abc import Iterable, Mapping
from itertools import takewhile
from types import CodeType, FrameType
from typing import Any

from sparktrain.errors import UserError
from sparktrain.training.notices import notice

Call = dict[str, Any]

_SHAPE = ("optimizer", "loss", "data", "trainable variables")
"""What a restart never changes."""
_LENGTH = ("epochs", "learning rate")
"""What a user may change to train longer or further."""
_STEPS = "steps of an epoch"
"""They change with the data too, as where files come while a run trains: alone they make no call another one."""
_PACKAGE = "sparktrain."


def describe_call(model: Any, parts: Iterable[Any], params: Mapping[str, Any], settings: int) -> Call:
    """The facts of the `fit` of a Keras `model` on the stack, which a checkpoint can hold, before it restores anything.

    `parts` are the specs of what is in a batch, none if unknown; `params` are those of its callbacks; `settings` is a
    number for what the trial was called with, and the size of its gang.
    """
    optimizer = model.optimizer
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    return {
        "optimizer": type(optimizer).__name__,
        "loss": _loss(getattr(model, "loss", None)),
        "data": ", ".join(map(_batch_spec, parts)),
        "trainable variables": len(model.trainable_variables) if model.built else None,
        "epochs": params["epochs"],
        _STEPS: params.get("steps"),
        "learning rate": _fresh_rate(optimizer),
        "settings": settings,
        "place": call_place(),
    }


def check_call(present: Call, noted: Call, fit: int, *, finished: bool) -> None:
    """Raise UserError if the `fit` numbered `fit` is not the one that an earlier process has `noted` under this number.

    A change that a user may have made gives a notice.
    """
    changed = [key for key in (*_SHAPE, _STEPS, *_LENGTH) if _differ(present.get(key), noted.get(key))]
    moved, edited = _compare_places(present.get("place", []), noted.get("place", []))
    is_new = edited or present.get("settings") != noted.get("settings")
    hard = [key for key in changed if key in _SHAPE and not (key == "loss" and is_new)]
    lengths = [key for key in changed if key in _LENGTH]
    # Longer training changes one of them; both at once, in the same code with the same parameters, are another phase.
    is_other = moved or hard or len(lengths) > is_new + (not finished)
    texts = [f"{key} {_shown(present[key])} instead of {_shown(noted[key])}" for key in changed]
    if is_other:
        facts = ", ".join(texts + [f"{moved}() calls it at another place"] * bool(moved))
        raise UserError(
            f"fit {fit} of this process is not the fit {fit} that an earlier process has "
            f"{'finished' if finished else 'trained'}: {facts}. A restarted function calls fit in the same order, and "
            "finished calls return at once, with their weights: leave none out, or start a new run"
        )
    if changed:
        rate = ", and the learning rate of the checkpoint changes in proportion" if "learning rate" in changed else ""
        skipped = "had finished, and is not repeated" if finished else f"resumes{rate}"
        notice(f"fit {fit} has {', '.join(texts)}: it {skipped}")


def follow_rate(model: Any, present: Call, noted: Call) -> None:
    """Give the optimizer of a restored Keras `model` another learning rate where the call has another one than `noted`.

    What callbacks had made of that one changes in proportion.
    """
    rate, former = (call.get("learning rate") for call in (present, noted))
    if not rate or not former or rate == former:
        return
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    restored = float(optimizer.learning_rate)
    optimizer.learning_rate.assign(rate if restored == former else restored * rate / former)


def settings_digest(params: Mapping[str, Any]) -> int:
    """A number for the parameters of a trial."""
    return zlib.crc32(repr(sorted(params.items())).encode())


def _differ(value: Any, counterpart: Any) -> bool:
    return value not in (None, "") and counterpart not in (None, "") and value != counterpart


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _loss(loss: Any) -> Any:
    """The name of a loss, or of each of several."""
    if isinstance(loss, Mapping):
        return {str(key): _loss(child) for key, child in loss.items()}
    if isinstance(loss, list | tuple):
        return [_loss(child) for child in loss]
    return loss if loss is None or isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)


def _batch_spec(spec: Any) -> str:
    """Type and shape of one part of a batch, without the number of rows; empty where they are unknown."""
    shape = getattr(spec, "shape", None)
    if shape is None or getattr(shape, "rank", 0) is None:
        return ""
    return f"{getattr(spec.dtype, 'name', spec.dtype)}{list(shape)[1:]}"


def _fresh_rate(optimizer: Any) -> float | None:
    """The learning rate with which an optimizer starts; None for one that has trained, and for a schedule."""
    if optimizer is None or int(optimizer.iterations):
        return None
    return None if callable(optimizer._learning_rate) else float(optimizer.learning_rate)


# ---- where the function calls it


def call_place() -> list[list[Any]]:
    """The functions of the user from the call of `fit` outwards, to the training function: name, digest, instruction.

    The one that calls it alone where the training function is unknown, as when its user calls it by hand.
    """
    frames = [frame for frame, _ in traceback.walk_stack(sys._getframe())]
    calls = [index for index, frame in enumerate(frames) if _module(frame).startswith("keras.")]
    outer = frames[calls[-1] + 1 :] if calls else []
    users = list(takewhile(lambda frame: not _module(frame).startswith(_PACKAGE), outer))
    if len(users) == len(outer):
        users = [frame for frame in users[:1] if frame.f_code.co_name != "<module>"]
    return [[frame.f_code.co_qualname, _digest(frame.f_code), frame.f_lasti] for frame in users]


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _digest(code: CodeType) -> int:
    plain = [value for value in code.co_consts if isinstance(value, int | float | str | tuple | None)]
    return zlib.crc32(repr((code.co_names, plain)).encode(), zlib.crc32(code.co_code))


def _compare_places(present: list[list[Any]], noted: list[list[Any]]) -> tuple[str, bool]:
    """The function that calls `fit` at another place, or an empty text; and whether its code is another."""
    for (name, code, at), (_, noted_code, noted_at) in zip(present, noted, strict=False):
        if code != noted_code:
            return "", True
        if at != noted_at:
            return name, False
    return "", False
