"""The backends of gangs, with all that other layers have to know of each: a new backend is a row here, and its ring."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from sparktrain.config.environment import JAX, TENSORFLOW, TORCH
from sparktrain.config.param_values import did_you_mean, shown
from sparktrain.errors import SpecError

AUTO: Literal["auto"] = "auto"
"""Leaves the choice to the run, which takes the best available backend."""


class Backend(StrEnum):
    """The framework that connects the members."""

    HOROVOD = "horovod"  # a ring of Horovod over Gloo
    TENSORFLOW = "tensorflow"  # TensorFlow's own collectives and strategies
    TORCH = "torch"  # PyTorch's process groups, as torchrun sets them up
    JAX = "jax"  # jax.distributed: JAX has the devices of all members
    PARAMETER_SERVER = "parameter-server"  # own servers, which apply the gradients of members that do not wait
    NONE = "none"  # the members only know each other's addresses

    @property
    def uses_tensorflow(self) -> bool:
        """Whether members that it connects train by TensorFlow."""
        return self.framework == TENSORFLOW

    @property
    def framework(self) -> str:
        """The framework by which members train that it connects; empty where that is any."""
        return BACKENDS[self].framework


@dataclass(frozen=True, kw_only=True)
class BackendFacts:
    """What distinguishes a backend. Reasons and advice are parts of messages; empty: there is none to give."""

    framework: str = ""
    """See `Backend.framework`."""
    ring: str = ""
    """The module with its `join`, below `sparktrain.training.frameworks`; empty: it connects nothing."""
    preload: frozenset[str] = frozenset()
    """Modules that connect a gang's members, which a zygote imports once."""
    on_executors: str = ""
    """The package that executors need to connect a gang, where no import of the driver shows that it is missing."""
    standby_refusal: str = ""
    """Why its members cannot take a process that waits."""
    local_steps_refusal: str = ""
    """Why its members do not average weights, and what to do."""
    strategy_advice: str = "leave that line out: no ring connects these members"
    """What a function should do in place of a strategy of TensorFlow that connects members."""


_KERAS = frozenset({"keras", "tensorflow"})
BACKENDS = {
    Backend.HOROVOD: BackendFacts(
        framework=TENSORFLOW,
        ring="tensorflow.collectives.horovod_ring",
        preload=_KERAS | {"horovod.tensorflow"},  # it starts threads in `init()`, which only members call
        strategy_advice="replace that line by ctx.distribute(optimizer), which trains on its ring",
    ),
    Backend.TENSORFLOW: BackendFacts(
        framework=TENSORFLOW,
        ring="tensorflow.collectives.tf_collectives",
        preload=_KERAS,
        standby_refusal="its collectives and parameter servers end with a lost member",
    ),
    Backend.TORCH: BackendFacts(
        framework=TORCH,
        ring="torch.torch_ring",
        preload=frozenset({"torch"}),
        on_executors=TORCH,
        local_steps_refusal="DistributedDataParallel averages gradients, and sparktrain averages weights of Keras "
        "models alone; leave local_steps out, and use torch's post-localSGD communication hook",
        strategy_advice="leave that line out, for PyTorch connects these members; or choose backend 'tensorflow'",
    ),
    Backend.JAX: BackendFacts(
        framework=JAX,
        ring="jax.jax_ring",
        preload=frozenset({"jax"}),
        on_executors=JAX,
        local_steps_refusal="its members average gradients within each step; leave local_steps out, or train Keras on "
        "TensorFlow with backend 'horovod' or 'tensorflow'",
        strategy_advice="leave that line out, for JAX connects these members; or choose backend 'tensorflow'",
    ),
    Backend.PARAMETER_SERVER: BackendFacts(
        framework=TENSORFLOW,
        ring="tensorflow.parameter_server.ps_ring",
        preload=_KERAS,
        standby_refusal="its workers train on without a lost one",
        strategy_advice="replace that line by ctx.distribute(optimizer), which trains by its servers",
    ),
    Backend.NONE: BackendFacts(
        standby_refusal="it connects nothing",
        local_steps_refusal="it averages nothing; choose backend 'horovod', 'tensorflow' or 'parameter-server', or "
        "leave local_steps out",
    ),
}


def backend_or_auto(value: object, subject: str = "backend") -> Backend | Literal["auto"]:
    """The backend named `value`, or "auto", which leaves the choice to the run. Raises SpecError."""
    return AUTO if value == AUTO else backend_named(value, subject, AUTO)


def backend_named(value: object, subject: str = "backend", *more: str) -> Backend:
    """The backend named `value`; `more` has other names that the caller accepts. Raises SpecError."""
    names = [*more, *(choice.value for choice in Backend)]
    if isinstance(value, str) and value in list(Backend):
        return Backend(value)
    hint = did_you_mean(value, names) if isinstance(value, str) else ""
    raise SpecError(
        f"{subject} ({shown(value)}) must be one of {', '.join(map(repr, names))}"
        f"{hint or '; pass one of them: with none, the members only know each other'}"
    )
