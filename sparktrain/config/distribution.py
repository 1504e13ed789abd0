"""Distributions that a parameter is sampled from: immutable values, as plain data in JSON.

uniform(0, 0.5)             any number between both
loguniform(1e-5, 1e-1)      the same, with an even spread of its logarithm
quniform(0, 1, 0.25)        0, 0.25, 0.5, 0.75, 1
randint(1, 8)               whole numbers, both ends included
lograndint(16, 1024)        the same, with an even spread of the logarithm
choice(["relu", "gelu"])    one of these
normal(0, 0.1)              a number by mean and standard deviation
"""

import json
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from sparktrain.base.boundary import users_call
from sparktrain.config.param_values import described, plain, shown, value_list
from sparktrain.errors import SpecError

TAIL = 1e-9
"""Probability beyond each end of the range that a normal distribution is sampled from."""
_MOST_INTEGER = 2**53
"""Samplers compute with floats, which hold integers up to this."""


@dataclass(frozen=True)
class Distribution:
    """What a parameter is sampled from; made by `uniform`, `loguniform`, `quniform`, `randint`, `lograndint`, `choice`
    and `normal`."""

    kind: str
    """The name of the function that made it."""
    arguments: tuple[Any, ...]
    """Its arguments: both ends and the step, the values of a choice, or mean and standard deviation."""

    def __str__(self) -> str:
        inside = json.dumps(self.arguments if self.kind == "choice" else None, ensure_ascii=False)
        numbers = ", ".join(f"{number:.12g}" if isinstance(number, float) else str(number) for number in self.arguments)
        return f"{self.kind}({inside if self.kind == 'choice' else numbers})"

    @property
    def values(self) -> tuple[Any, ...] | None:
        """All its values in order; None where they are not counted."""
        match self.kind:
            case "choice":
                return self.arguments
            case "randint" | "lograndint":
                return tuple(range(self.arguments[0], self.arguments[1] + 1))
            case "quniform":
                return tuple(map(self.at_step, range(self.steps + 1)))
        return None

    @property
    def size(self) -> int | None:
        """How many values it has; None where they are not counted."""
        match self.kind:
            case "choice":
                return len(self.arguments)
            case "randint" | "lograndint":
                return int(self.arguments[1] - self.arguments[0] + 1)
            case "quniform":
                return self.steps + 1
        return None

    @property
    def steps(self) -> int:
        """The number of steps from one end of a `quniform` to the other."""
        low, high, step = cast(tuple[float, float, float], self.arguments)
        # The quotient of (0.3 - 0) / 0.1 is below 3: without the addition the last step would be lost.
        return math.floor((high - low) / step + 1e-9)

    def at_step(self, index: int) -> float:
        """The value after so many steps, without the noise of adding floats."""
        low, _, step = self.arguments
        return float(f"{low + index * step:.12g}")

    def draw(self, source: random.Random) -> Any:
        """A value at random."""
        low = self.arguments[0]
        high = self.arguments[-1]
        match self.kind:
            case "choice":
                return self.arguments[source.randrange(len(self.arguments))]
            case "uniform":
                # The sum may be rounded to a number above the end.
                return min(high, low + source.random() * (high - low))
            case "loguniform":
                return self._within(math.exp(source.uniform(math.log(low), math.log(high))))
            case "quniform":
                return self.at_step(source.randrange(self.steps + 1))
            case "randint":
                return source.randint(low, high)
            case "lograndint":
                # Rounding gives each integer the interval around it: without half of one beyond, both ends would come
                # half as often.
                return int(self._within(round(math.exp(source.uniform(math.log(low - 0.5), math.log(high + 0.5))))))
        return self.quantile(TAIL + source.random() * (1 - 2 * TAIL))

    def quantile(self, share: float) -> float:
        """The value of a normal distribution below which that share of it lies."""
        return float(_normal(self).inv_cdf(share))

    def share(self, value: float) -> float:
        """The inverse of `quantile`, within the range that is sampled from."""
        return float(min(1 - TAIL, max(TAIL, _normal(self).cdf(value))))

    def _within(self, value: float) -> float:
        return cast(float, min(self.arguments[1], max(self.arguments[0], value)))


def drawn(leaf: Distribution | tuple[Any, ...], source: random.Random) -> Any:
    """A value at random of a distribution or a list."""
    return leaf.draw(source) if isinstance(leaf, Distribution) else leaf[source.randrange(len(leaf))]


def _normal(distribution: Distribution) -> Any:
    from statistics import NormalDist  # only here: every start of the command line would pay for it

    return NormalDist(*distribution.arguments)


@users_call
def uniform(low: float, high: float) -> Distribution:
    """Any number from `low` to `high`. Raises SpecError.

    >>> print(uniform(0, 0.5))
    uniform(0, 0.5)
    """
    subject = f"uniform({shown(low)}, {shown(high)})"
    return Distribution("uniform", _range(_number(low, subject), _number(high, subject), subject))


@users_call
def loguniform(low: float, high: float) -> Distribution:
    """Any number from `low` to `high`, both above 0, as if its logarithm were uniform. Raises SpecError."""
    subject = f"loguniform({shown(low)}, {shown(high)})"
    ends = _range(_number(low, subject), _number(high, subject), subject)
    return Distribution("loguniform", _above_zero(ends, subject, "a small number such as 1e-6"))


@users_call
def quniform(low: float, high: float, q: float) -> Distribution:
    """One of the numbers `low`, `low + q`, `low + 2q` and so on, up to `high`. Raises SpecError."""
    subject = f"quniform({shown(low)}, {shown(high)}, {shown(q)})"
    ends = _range(_number(low, subject), _number(high, subject), subject)
    step = _number(q, subject)
    if not 0 < step <= ends[1] - ends[0]:
        raise SpecError(f"{subject}: the step {step:.12g} must be above 0 and fit into the range; pass a smaller one")
    return Distribution("quniform", (*ends, step))


@users_call
def randint(low: int, high: int) -> Distribution:
    """A whole number from `low` to `high`, both included as in Python's own `random.randint`. Raises SpecError."""
    subject = f"randint({shown(low)}, {shown(high)})"
    return Distribution("randint", _range(_integer(low, subject), _integer(high, subject), subject))


@users_call
def lograndint(low: int, high: int) -> Distribution:
    """A whole number from `low` to `high`, both included and at least 1, as if its logarithm were uniform.

    Raises SpecError.
    """
    subject = f"lograndint({shown(low)}, {shown(high)})"
    ends = _range(_integer(low, subject), _integer(high, subject), subject)
    return Distribution("lograndint", _above_zero(ends, subject, "1"))


@users_call
def choice(values: object) -> Distribution:
    """One of the values of a list, which has each once. Raises SpecError."""
    listed = value_list(values, "choice()")
    texts: set[str] = set()
    for value in listed:
        text = json.dumps(value, sort_keys=True)
        if text in texts:
            raise SpecError(f"choice() lists {shown(value)} twice, each value has one place: remove one of them")
        texts.add(text)
    return Distribution("choice", listed)


@users_call
def normal(mean: float, sd: float) -> Distribution:
    """A number by mean and standard deviation. Raises SpecError."""
    subject = f"normal({shown(mean)}, {shown(sd)})"
    moments = _number(mean, subject), _number(sd, subject)
    if moments[1] <= 0:
        raise SpecError(f"{subject}: the standard deviation {moments[1]:.12g} must be above 0; pass a positive number")
    return Distribution("normal", moments)


KINDS: Mapping[str, Callable[..., Distribution]] = {
    factory.__name__: factory for factory in (uniform, loguniform, quniform, randint, lograndint, choice, normal)
}
"""What makes a distribution, by its kind."""


def to_document(distribution: Distribution) -> dict[str, Any]:
    """Encode a distribution as plain data."""
    return {distribution.kind: list(distribution.arguments)}


def from_document(document: Mapping[str, Any]) -> Distribution:
    """Decode what `to_document` encoded. Raises SpecError."""
    ((kind, arguments),) = document.items()
    return build_distribution(kind, [arguments] if kind == "choice" else arguments, kind)


def build_distribution(kind: str, arguments: list[Any], subject: str) -> Distribution:
    """The distribution of that kind. Raises SpecError, also for a wrong number of arguments."""
    expected = {"quniform": 3, "choice": 1}.get(kind, 2)
    if len(arguments) != expected:
        examples = {"quniform": "quniform(0, 1, 0.25)", "choice": "choice([1, 2])", "normal": "normal(0, 1)"}
        raise SpecError(
            f"{subject}: {kind}() has {len(arguments)} arguments, {expected} are expected; "
            f"write {examples.get(kind, f'{kind}(1, 8)')}"
        )
    return KINDS[kind](*arguments)


def _number(value: object, subject: str) -> float:
    number = plain(value, subject)
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise SpecError(f"{subject} is given {described(value)}, a number is expected; write it without quotes")
    return float(number)


def _integer(value: object, subject: str) -> int:
    number = plain(value, subject)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int):
        raise SpecError(f"{subject} is given {described(value)}, a whole number is expected; use uniform() for others")
    if abs(number) > _MOST_INTEGER:
        raise SpecError(f"{subject}: {number} is beyond 2**53, up to which samplers are exact; pass a smaller number")
    return number


def _range(low: Any, high: Any, subject: str) -> tuple[Any, Any]:
    if not low < high:
        defect = "empty" if low == high else "inverted"
        step = "list one value as it is" if low == high else f"write the smaller number first: {high}, {low}"
        raise SpecError(f"{subject}: the range is {defect}, the first number must be below the second; {step}")
    if not math.isfinite(high - low):
        raise SpecError(f"{subject}: the range is wider than a float can hold; narrow it")
    return low, high


def _above_zero(ends: tuple[Any, Any], subject: str, least: str) -> tuple[Any, Any]:
    if ends[0] <= 0:
        raise SpecError(
            f"{subject}: the range starts at {ends[0]}, which has no logarithm: start at {least}, or use the form "
            "without log"
        )
    return ends
