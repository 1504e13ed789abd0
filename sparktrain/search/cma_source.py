"""Results of former runs from which CMA-ES takes its first distribution: warm-started CMA-ES (arXiv 2012.06932)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

LEAST_KNOWN = 10
"""The distribution follows from the best tenth of so many results at least."""


class CmaSource:
    """The known results of one sampler, as Optuna takes them."""

    def __init__(self) -> None:
        self._results: list[tuple[dict[str, Any], float]] = []
        self._frozen_trials: list[FrozenTrial] = []

    def add(self, params: Mapping[str, Any], value: float) -> None:
        """A former trial with these parameters of Optuna has succeeded with `value`."""
        self._results.append((dict(params), value))

    def trials(self, numbers: "dict[str, BaseDistribution]") -> "list[FrozenTrial] | None":
        """They all, by these parameters alone; None for too few."""
        from optuna.trial import create_trial

        if len(self._results) < LEAST_KNOWN:
            return None
        for params, value in self._results[len(self._frozen_trials) :]:
            numeric_params = {path: params[path] for path in numbers}
            self._frozen_trials.append(create_trial(params=numeric_params, distributions=numbers, value=value))
        return self._frozen_trials
