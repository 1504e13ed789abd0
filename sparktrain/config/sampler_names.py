"""The names of samplers, and what may be passed in place of one."""

from typing import Any

from sparktrain.config.param_values import described, did_you_mean, shown
from sparktrain.errors import SpecError

OBJECT = "object "
"""The start of the stored name of a sampler that the user has made, before its class: it is not stored with the run."""
_STUDY = "sparktrain.search.study_sampler.StudySampler"
SAMPLERS = ("random", "tpe", "gp", "cmaes", "qmc", "nsgaii", "grid")


def sampler(value: object, subject: str = "sampler") -> Any:
    """`value` when it is one of `SAMPLERS`, a sampler of Optuna, or an object with the methods of `Sampler`.

    Raises SpecError.
    """
    if isinstance(value, str):
        if value not in SAMPLERS:
            raise SpecError(
                f"{subject} ({shown(value)}) must be one of {', '.join(SAMPLERS)}{did_you_mean(value, SAMPLERS)}"
            )
        return value
    if isinstance(value, type) or not (is_ours(value) or is_of_optuna(value)):
        raise SpecError(
            f"{subject} is {described(value)}; pass a name such as 'tpe', a sampler of Optuna, or an object with the "
            "methods suggest, observe and restore"
        )
    return value


def shown_name(name: str) -> str:
    """The stored name of a sampler for people: `the sampler models.Mine` for an object.

    >>> shown_name("tpe"), shown_name("object models.Mine")
    ('tpe', 'the sampler models.Mine')
    """
    if not is_object(name):
        return name
    kind = name.removeprefix(OBJECT)
    return "the study of optuna.optimize()" if kind == _STUDY else f"the sampler {kind}"


def is_object(name: str) -> bool:
    """Whether a stored name is that of a sampler that the user has made."""
    return name.startswith(OBJECT)


def is_ours(value: object) -> bool:
    """Whether it has the methods of `sparktrain.Sampler`."""
    return all(callable(getattr(value, name, None)) for name in ("suggest", "observe", "restore"))


def is_of_optuna(value: object) -> bool:
    """Whether it has the methods of `optuna.samplers.BaseSampler`; Optuna is not imported for that."""
    return all(callable(getattr(value, name, None)) for name in ("sample_relative", "sample_independent"))
