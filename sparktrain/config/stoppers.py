"""The rules that a user can choose to stop trials which cannot win; `state.pruning` applies them.

A rule is a frozen record, so that a run stores it with its plan. Steps are those of `ctx.report(step, ...)`. A function
that counts them from 1 needs `steps_from=1`, because the first report after a restart does not show where they start.
"""

import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, ClassVar, cast

from msgspec import Struct, json, structs
from msgspec import ValidationError as Invalid

from sparktrain.base.decoding import converted
from sparktrain.config.param_values import described, did_you_mean, native, shown
from sparktrain.errors import SpecError


class StopRule(Struct, frozen=True, tag=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of all rules."""

    word: ClassVar[str] = ""
    """The name of the rule as text."""

    steps_from: int = 0
    """The number of the first step that the function reports, 0 or 1."""

    def __post_init__(self) -> None:
        """Raises SpecError. Scalars of NumPy become Python's, which the plan of a run can hold."""
        for field in structs.fields(self):
            structs.force_setattr(self, field.name, native(getattr(self, field.name)))
        _check(self, "steps_from", self.steps_from in (0, 1), "must be 0 or 1: the number of the first reported step")

    def __str__(self) -> str:
        """The rule as text, such as `asha(most=27)`; `rules_of` reads it with a colon, as `asha:most=27`."""
        arguments = ", ".join(
            f"{field.name}={shown(getattr(self, field.name))}"
            for field in structs.fields(self)
            if getattr(self, field.name) != field.default
        )
        return f"{self.word}({arguments})" if arguments else self.word

    @property
    def line(self) -> str:
        """What the rule does, in the first lines of a run."""
        return str(self)


class _Halving(StopRule, frozen=True, tag=True, kw_only=True):
    """What the rules of successive halving share."""

    most: int | None = None
    """The steps of a whole trial. None: those of the first trial that succeeds; until then the rule stops no trial."""
    eta: int = 3
    """At each rung, the best 1/`eta` of the trials there continue; rungs are `eta` times as far apart each time."""
    first: int | None = None
    """The steps before the first rung. None: `most` divided by `eta` squared."""

    def __post_init__(self) -> None:
        """Raises SpecError."""
        super().__post_init__()
        _check(self, "eta", _is_integer(self.eta, 2), "must be a whole number from 2: one of `eta` trials continues")
        is_valid = self.most is None or _is_integer(self.most, 2)
        _check(self, "most", is_valid, "must be a whole number from 2, the steps of a trial")
        below = self.most is None or self.first is None or self.first < self.most
        _check(
            self,
            "first",
            (self.first is None or _is_integer(self.first, 1)) and below,
            "must be a whole number from 1 and below `most`: the steps before a trial may be stopped",
        )

    def rungs(self, most: int, bracket: int = 0) -> tuple[int, ...]:
        """The numbers of steps after which trials of a whole length `most` are compared, ascending."""
        steps = []
        rung = self.first_rung(most) * self.eta**bracket
        while rung < most:
            steps.append(rung)
            rung *= self.eta
        return tuple(steps)

    @property
    def line(self) -> str:
        """See base class."""
        if self.most is None:
            return f"{self}: stops no trial before one has succeeded, which shows how many steps a trial has"
        *rungs, last = self.rungs(self.most)
        steps_text = f"{', '.join(map(str, rungs))} and {last}" if rungs else str(last)
        return f"{self}: compares trials after {steps_text} of {self.most} steps"

    def first_rung(self, most: int) -> int:
        """The steps before the first rung of trials of a whole length `most`."""
        return self.first if self.first is not None else max(1, most // self.eta**2)


class ASHA(_Halving, frozen=True, tag="asha", kw_only=True):
    """Asynchronous successive halving (arXiv 1810.05934, section 3), in the form that stops, or in that which pauses.

    After `first`, `first * eta`, `first * eta**2` ... steps a trial continues if it is among the best 1/`eta` of those
    that have come to this rung. Ties continue, and so do the first `eta - 1` trials. A first rung that is too early
    stops good trials: with `first=1` of 27 steps the best of 40 trials survives in 38 % of runs, with 3 of 27 in 96 %.
    """

    word: ClassVar[str] = "asha"

    promote: bool = False
    """Whether the rule pauses a trial that is not among the best of its rung, and does not stop it. A paused trial
    releases its slot, and continues from its checkpoint once it is among the best (algorithm 2 of the paper). The
    training function must save checkpoints."""

    def __post_init__(self) -> None:
        """Raises SpecError."""
        super().__post_init__()
        _check(self, "promote", isinstance(self.promote, bool), "must be true or false")
        _check(self, "promote", not self.promote or self.most is not None, "needs `most`, the steps of a whole trial")


class Hyperband(_Halving, frozen=True, tag="hyperband", kw_only=True):
    """Hyperband (arXiv 1603.06560, section 3) over `ASHA`: it spreads trials over brackets with different first rungs.

    Choose it for metrics that are misleading early. The number of a trial determines its bracket.
    """

    word: ClassVar[str] = "hyperband"

    def first_rung(self, most: int) -> int:
        """See base class."""
        return self.first if self.first is not None else max(1, most // self.eta**3)

    def brackets(self, most: int) -> int:
        """The number of brackets: in each one the first rung is `eta` times as late as in the one before."""
        return max(1, len(self.rungs(most)))


class Median(StopRule, frozen=True, tag="median", kw_only=True):
    """The median rule (Golovin et al., Google Vizier, KDD 2017, section 3.2).

    The rule stops a trial if its best value so far is worse than the median of other trials' mean values up to the same
    step. Only trials that have ended, and that have reached this step, count.
    """

    word: ClassVar[str] = "median"

    warmup: int = 0
    """Steps before a trial may be stopped."""
    min_trials: int = 5
    """How many ended trials must have reached the step."""

    def __post_init__(self) -> None:
        """Raises SpecError."""
        super().__post_init__()
        _check(self, "warmup", _is_integer(self.warmup, 0), "must be a whole number of steps from 0")
        _check(self, "min_trials", _is_integer(self.min_trials, 1), "must be a whole number from 1")


class Patience(StopRule, frozen=True, tag="patience", kw_only=True):
    """Stops a trial if its metric has not improved for `steps` steps. Other trials play no part."""

    word: ClassVar[str] = "patience"

    steps: int = 10
    """Steps without an improvement after which the rule stops a trial."""
    min_delta: float = 0.0
    """How much better than the best so far a value must be to count as an improvement."""

    def __post_init__(self) -> None:
        """Raises SpecError."""
        super().__post_init__()
        _check(self, "steps", _is_integer(self.steps, 1), "must be a whole number from 1: steps without an improvement")
        _check(self, "min_delta", _number(self.min_delta) and self.min_delta >= 0, "must be a number from 0")


class Threshold(StopRule, frozen=True, tag="threshold", kw_only=True):
    """Stops a trial if its metric leaves the range from `lower` to `upper`, or is not finite.

    Without limits, it stops only trials with a metric that is not finite.
    """

    word: ClassVar[str] = "threshold"

    lower: float | None = None
    upper: float | None = None
    warmup: int = 0
    """Steps before a trial may be stopped."""

    def __post_init__(self) -> None:
        """Raises SpecError."""
        super().__post_init__()
        for name in ("lower", "upper"):
            limit = getattr(self, name)
            _check(self, name, limit is None or _number(limit), "must be a finite number")
        limits = [limit for limit in (self.lower, self.upper) if limit is not None]
        _check(self, "lower", limits == sorted(limits), f"must not be above upper ({shown(self.upper)})")
        _check(self, "warmup", _is_integer(self.warmup, 0), "must be a whole number of steps from 0")


class Wilcoxon(StopRule, frozen=True, tag="wilcoxon", kw_only=True):
    """Stops a trial that is worse than the best one by Wilcoxon's signed-rank test over their common steps.

    Choose it if steps are folds or problem instances in the same order in each trial, and not epochs of one training.
    It needs scipy, which `sparktrain[search]` installs.
    """

    word: ClassVar[str] = "wilcoxon"

    p: float = 0.1
    """The rule stops a trial if the probability of such a difference by chance is below `p`."""
    min_steps: int = 2
    """Common steps before a trial may be stopped."""

    def __post_init__(self) -> None:
        """Raises SpecError."""
        super().__post_init__()
        _check(self, "p", _number(self.p) and 0 < self.p < 1, "must be a number between 0 and 1")
        _check(self, "min_steps", _is_integer(self.min_steps, 2), "must be a whole number from 2")


class PBT(StopRule, frozen=True, tag="pbt", kw_only=True):
    """Population based training (arXiv 1711.09846, section 4): trials that run side by side learn from each other.

    After each `every` steps, a trial among the worst continues from the newest checkpoint of one of the best, chosen at
    random (exploit), with its parameters slightly changed (explore). In this way each parameter follows a schedule. The
    training function must save checkpoints. Give the sweep as many slots as it has trials, because the rule compares
    only trials that have not ended.
    """

    word: ClassVar[str] = "pbt"

    every: int = 1
    """Steps between two comparisons of a trial."""
    quantile: float = 0.2
    """The share of the population that counts as the worst, and as the best."""
    resample: float = 0.25
    """The probability that a parameter is drawn from its distribution instead of changed."""
    factors: tuple[float, ...] = (0.8, 1.2)
    """A number is multiplied by one of these factors. A choice or a list moves to a neighbour."""
    most: int | None = None
    """The steps of a whole trial: after them, the trial takes over no other one."""

    def __post_init__(self) -> None:
        """Raises SpecError."""
        super().__post_init__()
        _check(self, "every", _is_integer(self.every, 1), "must be a whole number of steps from 1")
        part = _number(self.quantile) and 0 < self.quantile <= 0.5
        _check(self, "quantile", part, "must be a number above 0, and at most 0.5")
        _check(self, "resample", _number(self.resample) and 0 <= self.resample <= 1, "must be a number from 0 to 1")
        usable = bool(self.factors) and all(_number(factor) and factor > 0 and factor != 1 for factor in self.factors)
        _check(self, "factors", usable, "must be numbers above 0, and none of them 1")
        is_valid = self.most is None or _is_integer(self.most, 2)
        _check(self, "most", is_valid, "must be a whole number from 2, the steps of a trial")

    @property
    def line(self) -> str:
        """See base class."""
        return f"{self}: after each {self.every} steps, the worst {self.quantile:.0%} of the trials take over the best"


AnyStopRule = ASHA | Hyperband | Median | Patience | Threshold | Wilcoxon | PBT
_RULES: dict[str, type[AnyStopRule]] = {
    "asha": ASHA,
    "hyperband": Hyperband,
    "median": Median,
    "patience": Patience,
    "threshold": Threshold,
    "wilcoxon": Wilcoxon,
    "pbt": PBT,
}


def rules_of(stopper: object, subject: str = "stopper") -> tuple[AnyStopRule, ...]:
    """The rules in `stopper`: a rule, its text such as "asha:most=27,eta=4", its JSON, a list of these, or None.

    Raises SpecError, with `subject` for what was given.
    """
    if stopper is None:
        return ()
    if isinstance(stopper, StopRule):
        return (_usable(cast(AnyStopRule, stopper), subject),)
    if isinstance(stopper, Mapping):
        return (_usable(_decoded(stopper, subject), subject),)
    if isinstance(stopper, str):
        return (_usable(_parsed(stopper, subject), subject),)
    if isinstance(stopper, Sequence) and not isinstance(stopper, bytes):
        return _together(tuple(dict.fromkeys(rule for entry in stopper for rule in rules_of(entry, subject))), subject)
    raise SpecError(
        f"{subject} is {described(stopper)}; pass one of {', '.join(map(repr, _RULES))}, a rule such as "
        "st.ASHA(most=27), or a list of them"
    )


def _together(rules: tuple[AnyStopRule, ...], subject: str) -> tuple[AnyStopRule, ...]:
    """`rules`, where they can be used side by side."""
    pbt = next((rule for rule in rules if isinstance(rule, PBT)), None)
    rival = next((rule for rule in rules if isinstance(rule, _Halving | PBT) and rule is not pbt), None)
    if pbt is not None and rival is not None:
        raise SpecError(
            f"{subject} has {pbt} and {rival}: a population lives as a whole, and rungs end most of it; pass one of "
            "them"
        )
    return rules


def _parsed(text: str, subject: str) -> AnyStopRule:
    name, _, options = text.partition(":")
    rule = _RULES.get(name.strip())
    if rule is None:
        rule_names = ", ".join(_RULES)
        raise SpecError(f"{subject} ({shown(text)}) is no rule{did_you_mean(name, _RULES)}; there are {rule_names}")
    values: dict[str, Any] = {}
    for part in filter(None, (option.strip() for option in options.split(","))):
        key, equals, value = part.partition("=")
        if not equals:
            raise SpecError(f"{subject} ({text!r}): {shown(part)} has no '='; write {name}:NAME=VALUE,NAME=VALUE")
        values[key.strip()] = value.strip()
    names = [field.name for field in structs.fields(rule)]
    if unknown := [key for key in values if key not in names]:
        raise SpecError(
            f"{subject} ({text!r}): {rule.word} has no option {unknown[0]!r}{did_you_mean(unknown[0], names)}; "
            f"it has {', '.join(names)}"
        )
    return _converted(values | {"type": rule.word}, rule, f"{subject} ({text!r})")


def _decoded(value: Mapping[object, object], subject: str) -> AnyStopRule:
    word = value.get("type")
    if not isinstance(word, str) or word not in _RULES:
        raise SpecError(
            f"{subject} is {described(value)} without a known type; write {{'type': 'asha', 'most': 27}}, or a text "
            f"such as 'asha:most=27'; there are {', '.join(_RULES)}"
        )
    return _converted(value, _RULES[word], subject)


def _converted(values: Mapping[Any, Any], rule: type[AnyStopRule], subject: str) -> AnyStopRule:
    try:
        return converted(values, rule, strict=False)
    except Invalid as error:
        raise SpecError(f"{subject}: {error}; its options are numbers, such as asha:most=27") from None


def _usable(rule: AnyStopRule, subject: str) -> AnyStopRule:
    """`rule`, where what it needs is installed."""
    if isinstance(rule, Wilcoxon) and find_spec("scipy") is None:
        raise SpecError(f"{subject} wilcoxon needs scipy, which is not installed: pip install 'sparktrain[search]'")
    return rule


def _check(rule: StopRule, name: str, holds: bool, rule_text: str) -> None:
    if not holds:
        raise SpecError(f"stopper {rule.word}: {name} ({shown(getattr(rule, name))}) {rule_text}")


def _is_integer(value: object, least: int) -> bool:
    return type(value) is int and value >= least


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def encoded(rules: Sequence[AnyStopRule]) -> list[dict[str, Any]]:
    """The rules as JSON values, which `rules_of` reads."""
    return cast(list[dict[str, Any]], json.decode(json.encode(rules)))


def rule_text(stored: object) -> str:
    """Stored rules as a call writes them, such as `asha(most=27)`: for every view of a run. Pure.

    What this version does not know is shown as it is stored.
    """
    if not isinstance(stored, Sequence) or not all(isinstance(rule, Mapping) for rule in stored):
        return ""
    try:
        return ", ".join(str(_decoded(rule, "stopper")) for rule in stored)
    except SpecError:
        return json.encode(stored).decode()
