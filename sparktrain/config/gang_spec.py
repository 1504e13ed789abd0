"""The specification of a gang: its backend, and the roles of its members."""

from dataclasses import dataclass
from enum import StrEnum

from sparktrain.config.backends import BACKENDS, Backend, backend_named
from sparktrain.config.param_values import described
from sparktrain.config.quantities import count, seconds
from sparktrain.config.server_settings import ServerMode, ServerSettings, server_mode
from sparktrain.errors import SpecError


class Role(StrEnum):
    """What a member is in its gang. A ring has only a chief and workers."""

    CHIEF = "chief"
    WORKER = "worker"
    PS = "ps"
    EVALUATOR = "evaluator"


@dataclass(frozen=True, kw_only=True)
class GangSpec:
    """The gang of each trial of a run. Construction raises SpecError for a value that breaks its rule."""

    workers: int = 1
    """Members that train, including the chief."""
    ps: int = 0
    evaluator: bool = False
    backend: Backend = Backend.HOROVOD
    min_workers: int | None = None
    """How few workers a gang continues with when agents are lost for good; None: it waits for all."""
    standby: int = 0
    """Processes that wait, prepared, for the place of a member that is lost, on agents of their own."""
    spread: bool = False
    """Whether no host should have more than half of the members."""
    ps_mode: ServerMode = ServerMode.ASYNC
    """When a gradient counts, and by how much, with backend "parameter-server"."""
    backup_workers: int = 0
    """How many gradients of a round of `sync` need not come."""
    local_steps: int | None = None
    """Steps that each member trains by itself before all average their weights; None: gradients, in each step."""
    hang_timeout_s: float = 120.0
    """How long a member may report no training step before it is ended; at least ten times its usual step."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "backend", backend_named(self.backend))
        self._set_numbers()
        self._check_servers()
        self._check_averaging()
        self._check_standby()
        if self.backend not in (Backend.TENSORFLOW, Backend.PARAMETER_SERVER) and (self.ps or self.evaluator):
            raise SpecError(
                f"ps={self.ps}, evaluator={self.evaluator} with backend {self.backend.value!r}: only backend "
                "'tensorflow' has parameter servers and evaluators, and 'parameter-server' has servers; drop them, or "
                "choose one of these"
            )
        if self.min_workers is not None and (self.ps or self.evaluator):
            raise SpecError(
                f"min_workers ({self.min_workers}) is for rings, and a cluster with parameter servers or an evaluator "
                "cannot shrink: leave it out"
            )

    def _check_servers(self) -> None:
        object.__setattr__(self, "ps_mode", server_mode(self.ps_mode))
        if self.backend is not Backend.PARAMETER_SERVER:
            if self.ps_mode is not ServerMode.ASYNC or self.backup_workers:
                raise SpecError(
                    f"ps_mode={self.ps_mode.value!r}, backup_workers={self.backup_workers} with backend "
                    f"{self.backend.value!r}: these are of backend 'parameter-server'; leave them out, or choose it"
                )
            return
        if not self.ps:
            raise SpecError(
                "backend 'parameter-server' with ps=0: its servers keep the variables; pass ps=1 or more, or another "
                "backend"
            )
        if self.evaluator:
            raise SpecError(
                "evaluator=True with backend 'parameter-server': only backend 'tensorflow' has evaluators; leave it "
                "out, or choose that"
            )
        _ = self.servers

    def _check_averaging(self) -> None:
        is_ps_backend = self.backend is Backend.PARAMETER_SERVER
        if self.local_steps is None:
            if is_ps_backend and self.servers.local:
                raise SpecError(
                    "ps_mode 'local-sgd' without local_steps: it is how many steps a worker trains by itself before it "
                    "pushes; pass local_steps=8, or another mode"
                )
            return
        prefix = f"local_steps={self.local_steps} with"
        if is_ps_backend and not self.servers.local:
            raise SpecError(
                f"{prefix} ps_mode {self.ps_mode.value!r}: there the servers get each gradient; pass "
                "ps_mode='local-sgd', or leave local_steps out"
            )
        if refusal := BACKENDS[self.backend].local_steps_refusal:
            raise SpecError(f"{prefix} backend {self.backend.value!r}: {refusal}")
        if self.backend is Backend.TENSORFLOW and (self.ps or self.evaluator):
            raise SpecError(
                f"{prefix} TensorFlow's own cluster (ps={self.ps}, evaluator={self.evaluator}): only rings and backend "
                "'parameter-server' with ps_mode='local-sgd' average weights; choose one of them, or leave local_steps "
                "out"
            )

    @property
    def servers(self) -> ServerSettings:
        """How the servers of backend "parameter-server" combine gradients. Raises SpecError."""
        return ServerSettings(self.ps_mode, self.workers, self.backup_workers)

    def _set_numbers(self) -> None:
        for flag in ("evaluator", "spread"):
            if type(getattr(self, flag)) is not bool:
                raise SpecError(f"{flag} is {described(getattr(self, flag))}; pass True or False")
        least = {"workers": 1, "ps": 0, "standby": 0, "backup_workers": 0} | (
            {} if self.min_workers is None else {"min_workers": 1}
        )
        least |= {} if self.local_steps is None else {"local_steps": 1}
        for name, smallest in least.items():
            object.__setattr__(self, name, count(getattr(self, name), name, smallest))
        if self.min_workers is not None and self.min_workers > self.workers:
            raise SpecError(
                f"min_workers ({self.min_workers}) must be at most workers ({self.workers}): it is what the gang may "
                "shrink to; lower it, or leave it out"
            )
        hang_timeout_s = seconds(self.hang_timeout_s, "hang_timeout")
        if hang_timeout_s is None:
            raise SpecError("hang_timeout is None, a wait must end: pass seconds, such as 120")
        object.__setattr__(self, "hang_timeout_s", hang_timeout_s)

    def _check_standby(self) -> None:
        if not self.standby:
            return
        subject = f"standby={self.standby}"
        if self.workers == 1 and not (self.ps or self.evaluator):
            raise SpecError(
                f"{subject} with workers=1: a process that waits gets the state of the other members, and there are "
                "none; pass workers=2 or more, or leave it out"
            )
        if self.min_workers is not None:
            raise SpecError(
                f"{subject} with min_workers={self.min_workers}: after a loss a gang continues with fewer members, or "
                "has a process that takes the place; leave out one of them"
            )
        if self.local_steps is not None:
            raise SpecError(
                f"{subject} with local_steps={self.local_steps}: members that train steps by themselves do not heal; "
                "leave out one of them"
            )
        refusal = BACKENDS[self.backend].standby_refusal
        if self.size > self.workers:
            refusal = refusal or "it has parameter servers"
        if refusal:
            raise SpecError(
                f"{subject} with backend {self.backend.value!r}: {refusal}, and only rings of backends 'horovod', "
                "'torch' and 'jax' take a process that waits; choose one of them, or leave standby out, and pass more "
                "agents= for the next process of a lost member"
            )

    @property
    def size(self) -> int:
        """The number of members."""
        return self.workers + self.ps + self.evaluator

    @property
    def keras_backend(self) -> str:
        """The backend on which Keras trains by all members; empty where members train by themselves, on any."""
        return "" if self.size == 1 else self.backend.framework

    @property
    def in_step(self) -> bool:
        """Whether all members that train make each step together, as in a ring: none can have made fewer."""
        return self.backend is not Backend.NONE and not self.ps

    def roles(self) -> tuple[Role, ...]:
        """Roles by rank: the chief, the other workers, parameter servers, the evaluator."""
        workers = [Role.CHIEF, *[Role.WORKER] * (self.workers - 1)]
        return (*workers, *[Role.PS] * self.ps, *[Role.EVALUATOR] * self.evaluator)


ALONE = GangSpec()
"""The gang of an ordinary trial, with one member."""
