"""The name of a metric, and which of its ends is better, which the name may show. Pure."""

import re
from typing import Literal, cast

from sparktrain.config.param_values import described, shown
from sparktrain.errors import SpecError

Mode = Literal["max", "min"]
BETTER: dict[Mode, str] = {"max": "higher", "min": "lower"}

_LOWER = """
loss losses error errors err mse mae rmse mape msle rmsle smape perplexity ppl nll bpc bpb logloss crossentropy xent kl
kld divergence hinge poisson logcosh huber brier wer cer fid kid lpips regret cost eer fpr fnr deviance residual
"""
_HIGHER = """
accuracy acc auc auroc auprc roc f1 f2 fbeta precision recall sensitivity specificity r2 iou miou dice jaccard map mrr
ndcg bleu rouge meteor chrf score reward psnr ssim similarity likelihood elbo tpr tnr kappa mcc hits
"""
_NEUTRAL = """
val validation valid train training test testing eval evaluation dev holdout cv epoch batch step final best last mean
avg average median total overall macro micro weighted global raw rate at k top on
"""
# the last are words beside the name of a metric that do not change its direction
_MIN, _MAX, _BESIDE = (frozenset(words.split()) for words in (_LOWER, _HIGHER, _NEUTRAL))
_TURNED = frozenset({"neg", "negative", "minus"})
_UNCLEAR = frozenset({"inverse", "inv", "one", "non", "not", "no", "anti", "delta", "std", "var", "variance", "diff"})


def metric_name(value: object, subject: str = "metric") -> str | None:
    """`value` when it is None or can name a metric. Raises SpecError."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise SpecError(
            f"{subject} is {described(value)}, text is expected; name a key of what the training function returns"
        )
    if not value or value != value.strip():
        raise SpecError(
            f"{subject} ({shown(value)}) is empty or has spaces at its ends; name a key of what the training function "
            "returns"
        )
    return value


def mode(value: object, subject: str = "mode") -> Mode:
    """`value` when it is "max" or "min". Raises SpecError."""
    if not isinstance(value, str) or value not in ("max", "min"):
        raise SpecError(f"{subject} ({shown(value)}) must be 'max' or 'min': name the better end of the metric")
    return cast(Mode, value)


def mode_of(metric: str | None, direction: object, subject: str = "mode") -> Mode:
    """`direction` when it is "max" or "min"; for None, the end that the name of the metric implies.

    Without a metric nothing is compared, and it is "max". Raises SpecError when the name implies neither.
    """
    if direction is not None:
        return mode(direction, subject)
    if metric is None:
        return "max"
    if (implied := implied_by(metric)) is None:
        raise SpecError(
            f"metric {shown(metric)} does not show by its name which of its values are better: pass mode='max' "
            f"when higher ones are, or mode='min' when lower ones are (--mode on the command line)"
        )
    return implied


def implied_by(name: str) -> Mode | None:
    """The better end of a metric with that name: its last word counts, as in `dice_loss`; None when unclear.

    >>> implied_by("val_loss"), implied_by("top_5_accuracy"), implied_by("neg_mean_squared_error"), implied_by("speed")
    ('min', 'max', 'max', None)
    """
    words = _words(name)
    while words and (words[-1] in _BESIDE or words[-1].isdigit()):
        words.pop()
    if not words or _UNCLEAR & set(words) or words[:1] == ["1"]:
        return None
    ends = [_end_of(word) for word in words]
    if ends[-1] is None or (ends[-1] == "max" and "min" in ends and not _TURNED & set(words)):
        return None  # such as `error_score`, which may mean either
    turned = len([word for word in words if word in _TURNED]) % 2
    return "min" if (ends[-1] == "max") == bool(turned) else "max"


def first_line(metric: str, best: Mode) -> str:
    """The line about its metric that a run prints at its start."""
    return f"metric {metric}, {BETTER[best]} is better"


def _end_of(word: str) -> Mode | None:
    spelled = {word, word.rstrip("0123456789")}  # `f1` is one of them, and `map50` is a kind of `map`
    return "min" if spelled & _MIN else "max" if spelled & _MAX else None


def _words(name: str) -> list[str]:
    lower = name.lower().replace("io_u", "iou").replace("cross_entropy", "crossentropy").replace("log_loss", "logloss")
    return re.findall(r"[a-z]+[0-9]*|[0-9]+", lower)
