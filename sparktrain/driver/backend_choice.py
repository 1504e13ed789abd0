"""The backend of a gang when the user names none, and why; and that of Keras, which must go with it."""

import os
from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from sparktrain.base.optional_packages import is_installed
from sparktrain.config.backends import Backend
from sparktrain.config.environment import (
    JAX,
    KERAS_BACKEND,
    TENSORFLOW,
    TITLES,
    TORCH,
    keras_backend,
    refusal_in_gang,
)
from sparktrain.config.gang_spec import GangSpec
from sparktrain.errors import SpecError
from sparktrain.usercode.framework_imports import KERAS, NO_IMPORTS, FrameworkImports
from sparktrain.usercode.keras_choice import KerasChoice

HOROVOD = "horovod"
_IN_CALL = f"{KERAS_BACKEND} in env= or forward_env="


class Choice(Struct, frozen=True):
    """A backend that was chosen for the user."""

    backend: Backend
    why: str
    tentative: bool = False
    """It is not known yet whether executors have it."""
    otherwise: str = ""
    """What else the function imports, and how to choose a backend for that."""

    @property
    def line(self) -> str:
        """The choice in one line, for the user."""
        return f"backend {self.backend.value}: {'; '.join(filter(None, (self.why, self.otherwise)))}"

    def settled(self, has_horovod: bool) -> "Choice":
        """The same once it is known whether executors have Horovod (`has_horovod`)."""
        if has_horovod:
            return replace(self, why="driver and executors have Horovod", tentative=False)
        why = "executors have no Horovod, which is faster for large models"
        return replace(self, backend=Backend.TENSORFLOW, why=why, tentative=False)

    def resumed(self, before: Backend) -> "Choice":
        """The backend of a resumed run, regardless of what would be chosen now."""
        return Choice(before, "the run started with it")


def choose(
    gang: GangSpec,
    imports: FrameworkImports = NO_IMPORTS,
    keras: tuple[str, str] = ("", ""),
    *,
    strategy: bool = False,
    installed: Callable[[str], bool] = is_installed,
) -> Choice:
    """For a gang of several members, with parameter servers and evaluators among them.

    `imports` are those of the function; `keras`: as `keras_setting` returns it; `strategy`: it makes one of
    TensorFlow's. Blocks on the local disk where the function imports several frameworks.
    """
    if gang.size > gang.workers:
        return Choice(Backend.TENSORFLOW, "only it has parameter servers and evaluators")
    if strategy:
        return Choice(Backend.TENSORFLOW, "the function makes a strategy, which only it connects")
    choice = _of_imports(imports, keras)
    if choice is None and installed("tensorflow") and installed(HOROVOD):
        choice = Choice(Backend.HOROVOD, "the driver has Horovod", tentative=True)
    choice = choice or Choice(Backend.TENSORFLOW, "the driver has no Horovod, which is faster for large models")
    return replace(choice, otherwise=_otherwise(choice.backend, imports, keras[0]))


def _of_imports(imports: FrameworkImports, keras: tuple[str, str]) -> Choice | None:
    """The backend that the function's own imports, and what Keras runs on, decide; None where they do not."""
    backend, place = keras
    frameworks = imports.frameworks
    if backend == TORCH:
        return Choice(Backend.TORCH, f"{place} has Keras run on PyTorch")
    if TORCH in frameworks and TENSORFLOW not in frameworks and not imports.has_keras:
        return Choice(Backend.TORCH, "the function's modules import torch, and not TensorFlow")
    if not frameworks & {TENSORFLOW, TORCH} and (backend == JAX if imports.has_keras else JAX in frameworks):
        return Choice(Backend.JAX, "the function trains by JAX, and its modules import neither TensorFlow nor torch")
    if backend == JAX:
        return Choice(Backend.JAX, f"{place} has Keras run on JAX")
    return None


def _otherwise(backend: Backend, imports: FrameworkImports, keras: str) -> str:
    """How to choose another backend, where the function imports frameworks that `backend` does not connect."""
    chosen = backend.framework
    others = sorted(imports.frameworks - {chosen, *([JAX] if chosen != TORCH and keras == JAX else [])})
    if not others:
        return ""
    lines = " and ".join(imports.line_of(framework) for framework in others)
    ways = " or ".join(f"backend={name!r}" for framework in others for name in _backends(framework)[:1])
    return f"{lines}: pass {ways} to connect members that train by {_titles(others)}"


def _backends(framework: str) -> list[str]:
    """Those that connect members which train by `framework`, without the one that needs servers too."""
    choices = [choice for choice in Backend if choice is not Backend.PARAMETER_SERVER]
    return [choice.value for choice in choices if choice.framework == framework]


def check_imports(gang: GangSpec, imports: FrameworkImports) -> None:
    """Raise SpecError where a gang has a backend for another framework than all that the function imports.

    For a backend that the user names. Reads installed packages before it raises: one that the function imports may
    import the framework in turn.
    """
    trains = gang.backend.framework
    others = sorted(imports.own_frameworks - {trains})
    if gang.size == 1 or not trains or not others or trains in imports.frameworks or imports.has_keras:
        return
    if imports.may_reach(trains):
        return
    lines = " and ".join(imports.line_of(framework) for framework in others)
    ways = " or ".join(repr(backend) for framework in others for backend in _backends(framework))
    raise SpecError(
        f"backend={gang.backend.value!r}: {lines}, and nothing that the function imports is {TITLES[trains]}, by which "
        f"the members of such a gang train; pass backend={ways}, or 'auto', which chooses by these imports"
    )


def _titles(frameworks: list[str]) -> str:
    return " or ".join(TITLES[framework] for framework in frameworks)


class KerasUse(Struct, frozen=True):
    """The backend of Keras in members."""

    chosen: str = ""
    """The one that the function of a gang, or its variables, choose: see `chosen_keras`."""
    expected: tuple[str, str] = ("", "")
    """The one that executors must have set: see `expected_keras`."""
    needed: str = ""
    """The line that imports Keras, in a gang which leaves it no other backend than its own: see `needed_keras`."""


def keras_setting(choice: Callable[[], KerasChoice | None], env: Mapping[str, str]) -> tuple[str, str]:
    """The backend of Keras that trials of a function will have, as far as this process knows, and what chooses it.

    Their executors may inherit another one than this process does: `check_inherited_keras`. Blocks on the local disk.
    """
    if (keras_choice := choice()) is not None:
        return keras_choice.backend, keras_choice.place
    if env.get(KERAS_BACKEND):
        return env[KERAS_BACKEND], _IN_CALL
    return keras_backend({**os.environ, **env}) or ("", "")


def chosen_keras(
    choice: Callable[[], KerasChoice | None],
    gang: GangSpec,
    env: Mapping[str, str],
    uses_keras: Callable[[], bool] = lambda: True,
) -> str:
    """The backend of Keras that a function or its variables choose for a gang; empty where they choose none.

    `choice` and `uses_keras` look at the function, which may leave Keras alone in a gang of another framework than
    TensorFlow. Raises SpecError for one that a gang cannot train with.
    """
    if not gang.keras_backend:
        return ""
    if (keras_choice := choice()) is not None:
        return _checked(keras_choice.backend, keras_choice.place, gang)
    backend = env.get(KERAS_BACKEND, "")
    if gang.keras_backend not in (TENSORFLOW, backend) and not uses_keras():
        return backend
    return _checked(backend, _IN_CALL, gang)


def expected_keras(
    choice: Callable[[], KerasChoice | None], env: Mapping[str, str], uses_keras: Callable[[], bool]
) -> tuple[str, str]:
    """The backend of Keras that this user has set for this process, where a function relies on it, and what sets it.

    Two empty texts where that is Keras's default, or the function or its variables `env` choose a backend, or it does
    not import Keras. Blocks on the local disk.
    """
    backend, place = keras_backend(os.environ) or ("", "")
    if backend in ("", TENSORFLOW) or env.get(KERAS_BACKEND) or choice() is not None or not uses_keras():
        return "", ""
    return backend, place


def check_reported_keras(expected: tuple[str, str], reported: str) -> None:
    """Raise SpecError where executors would run Keras on another backend than the one that `expected_keras` returned.

    `reported` is theirs; empty where they have set none.
    """
    backend, place = expected
    if backend and backend != (reported or TENSORFLOW):
        raise SpecError(
            f"{place} has Keras run on {backend} here, and the executors would run it on {reported or TENSORFLOW}: "
            f"pass env={{'{KERAS_BACKEND}': {backend!r}}} (--env {KERAS_BACKEND}={backend}), or set "
            f"spark.executorEnv.{KERAS_BACKEND}"
        )


def needed_keras(gang: GangSpec, imports: FrameworkImports, chosen: str) -> str:
    """The line that imports Keras where a function has nothing else that trains by the framework of its gang.

    Empty for a gang of TensorFlow, which is what Keras runs on by itself, and where a backend is `chosen`. Blocks on
    the local disk.
    """
    trains = gang.keras_backend
    if chosen or not imports.uses_keras or trains in ("", TENSORFLOW, *imports.frameworks):
        return ""
    return "" if imports.may_reach(trains) else imports.line_of(KERAS)


def check_needed_keras(gang: GangSpec, line: str, reported: str) -> None:
    """Raise SpecError where members would run Keras, and nothing else, on another backend than that of their gang.

    `line` is as `needed_keras` returns it; `reported`: what they have set, empty for nothing.
    """
    trains = gang.keras_backend
    if line and trains != (reported or TENSORFLOW):
        raise SpecError(
            f"backend={gang.backend.value!r}: {line}, and Keras would run on {reported or TENSORFLOW}: pass "
            f"env={{'{KERAS_BACKEND}': {trains!r}}} (--env {KERAS_BACKEND}={trains}), or backend='auto', which takes "
            "what Keras runs on"
        )


def check_inherited_keras(gang: GangSpec, chosen: str, needed: str = "") -> None:
    """Raise SpecError where members inherit another backend from this process and its user, unless one is `chosen`.

    `needed` is as `needed_keras` returns it.

    Members that train by another framework than TensorFlow may leave Keras alone: their calls of it check that. Blocks
    on the local disk.
    """
    inherited = keras_backend(os.environ) or ("", "")
    check_needed_keras(gang, needed, inherited[0])
    if gang.keras_backend == TENSORFLOW and not chosen:
        _checked(*inherited, gang)


def _checked(backend: str, place: str, gang: GangSpec) -> str:
    if problem := refusal_in_gang(backend, place, gang.keras_backend):
        raise SpecError(problem)
    return backend
