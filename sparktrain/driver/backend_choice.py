"""The backend of a gang when the user names none, and why; and that of Keras, which must go with it."""

import os
from collections.abc import Callable, Mapping

from msgspec import Struct

from sparktrain.config.environment import JAX, KERAS_BACKEND, TENSORFLOW, TORCH, keras_backend, refusal_in_gang
from sparktrain.config.gang_spec import Backend, GangSpec
from sparktrain.errors import SpecError
from sparktrain.optional_packages import is_installed
from sparktrain.usercode.keras_choice import KerasChoice

HOROVOD = "horovod"
_IN_CALL = f"{KERAS_BACKEND} in env= or forward_env="


class Choice(Struct, frozen=True):
    """A backend that was chosen for the user."""

    backend: Backend
    why: str
    tentative: bool = False
    """It is not known yet whether executors have it."""

    @property
    def line(self) -> str:
        """The choice in one line, for the user."""
        return f"backend {self.backend.value}: {self.why}"

    def settled(self, has_horovod: bool) -> "Choice":
        """The same once it is known whether executors have Horovod (`has_horovod`)."""
        if has_horovod:
            return Choice(self.backend, "driver and executors have Horovod")
        return Choice(Backend.TENSORFLOW, "executors have no Horovod, which is faster for large models")

    def resumed(self, before: Backend) -> "Choice":
        """The backend of a resumed run, regardless of what would be chosen now."""
        return Choice(before, "the run started with it")


def choose(
    servers: bool,
    strategy: bool,
    installed: Callable[[str], bool] = is_installed,
    *,
    torch: bool = False,
    jax: bool = False,
    keras: tuple[str, str] = ("", ""),
) -> Choice:
    """For a gang of several members, with `servers` when some of them are parameter servers or evaluators.

    `strategy`: the function makes one of TensorFlow's; `torch`: its modules import PyTorch and not TensorFlow; `jax`:
    they import JAX, or Keras that runs on it, and neither of these; `keras`: as `keras_setting` returns it. Others have
    Horovod where driver and executors have it, else TensorFlow's own collectives, which need nothing else.
    """
    if servers:
        return Choice(Backend.TENSORFLOW, "only it has parameter servers and evaluators")
    if strategy:
        return Choice(Backend.TENSORFLOW, "the function makes a strategy, which only it connects")
    backend, place = keras
    if backend == TORCH:
        return Choice(Backend.TORCH, f"{place} has Keras run on PyTorch")
    if torch:
        return Choice(Backend.TORCH, "the function's modules import torch, and not TensorFlow")
    if jax:
        return Choice(Backend.JAX, "the function trains by JAX, and its modules import neither TensorFlow nor torch")
    if backend == JAX:
        return Choice(Backend.JAX, f"{place} has Keras run on JAX")
    if not (installed("tensorflow") and installed(HOROVOD)):
        return Choice(Backend.TENSORFLOW, "the driver has no Horovod, which is faster for large models")
    return Choice(Backend.HOROVOD, "the driver has Horovod", tentative=True)


class KerasUse(Struct, frozen=True):
    """The backend of Keras in members."""

    chosen: str = ""
    """The one that the function of a gang, or its variables, choose: see `chosen_keras`."""
    expected: tuple[str, str] = ("", "")
    """The one that executors must have set: see `expected_keras`."""


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


def check_inherited_keras(gang: GangSpec, chosen: str) -> None:
    """Raise SpecError where members inherit another backend from this process and its user, unless one is `chosen`.

    Members that train by another framework than TensorFlow may leave Keras alone: their calls of it check that. Blocks
    on the local disk.
    """
    if gang.keras_backend == TENSORFLOW and not chosen:
        inherited = keras_backend(os.environ)
        _checked(*inherited or ("", ""), gang)


def _checked(backend: str, place: str, gang: GangSpec) -> str:
    if problem := refusal_in_gang(backend, place, gang.keras_backend):
        raise SpecError(problem)
    return backend
