"""Agents that come by themselves: of a coordinator in the cluster, which one of them has started."""

from collections.abc import Callable, Sequence

from sparktrain.cluster.announced_losses import AnnouncedLosses
from sparktrain.cluster.driver_address import Address
from sparktrain.cluster.import_failures import Missing
from sparktrain.cluster.task_failures import TaskFailures
from sparktrain.cluster.token_renewer import TokenKeeper
from sparktrain.config.store_address import StoreAddress
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.driver.data.data_plan import DataPlan
from sparktrain.driver.engines.engine import AgentBatch, Engine, OnBatchEnd
from sparktrain.protocol.certificates import CertificateKeeper, RunCertificates
from sparktrain.protocol.ticket import AgentTicket

EVERYWHERE = "0.0.0.0"


class AdoptedBatch(AgentBatch):
    """See base class. Its agents are there already, or Spark starts them: it only lets them know of the coordinator."""

    def __init__(self, publish: Callable[[int], None], port: int) -> None:
        self._publish = publish
        self._port = port

    def start(self) -> None:
        """See base class. Blocks on the store; raises OSError."""
        self._publish(self._port)

    def lacking(self) -> Missing | None:
        """See base class."""
        return None

    def vacant(self) -> set[int]:
        """See base class."""
        return set()

    def cancel(self) -> None:
        """See base class. Agents end by themselves once the run has ended."""

    def join(self, timeout_s: float) -> bool:
        """See base class."""
        return True


class AdoptedEngine(Engine):
    """See base class: the slots of the Spark job that the client has submitted."""

    notes = ()
    runs_jobs = True
    batch_name = "the Spark job of the agents"
    inherits = False
    notice = None
    ended = False

    def __init__(
        self,
        agents: tuple[int, int],
        hosts: tuple[str, ...],
        certificates: RunCertificates,
        publish: Callable[[int], None],
    ) -> None:
        """`agents`: how many there are, and how many of them without GPUs. `publish` gets the port, and blocks."""
        self._agents = agents
        self._hosts = hosts
        self._certificates = certificates
        self._publish = publish
        self.gpu_mib = 0

    @property
    def name(self) -> str:
        """See base class."""
        return "the Spark session of the client"

    @property
    def holder(self) -> object:
        """See base class."""
        return self

    @property
    def slots(self) -> int | None:
        """See base class."""
        return self._agents[0]

    def sharing(self, gpu_mib: int) -> "AdoptedEngine":
        """See base class."""
        self.gpu_mib = gpu_mib
        return self

    def check_data(self, plan: DataPlan) -> None:
        """See base class. The client has checked it."""

    def check_run(self, spec: SweepSpec) -> None:
        """See base class. The client has checked it."""

    def check_cluster(self) -> None:
        """See base class."""

    def agents_for(
        self, spec: SweepSpec | None, agents: int | None, trials: int | None, concurrent: int | None = None
    ) -> tuple[int, int]:
        """See base class: as many as the client has asked Spark for."""
        return self._agents

    def tokens(self, store: StoreAddress) -> TokenKeeper | None:
        """See base class. None: the tickets of the agents have the tokens, and no JVM here could renew them."""
        return None

    def certificates(self, pool: str) -> CertificateKeeper:
        """See base class: those of the tickets."""
        return CertificateKeeper(pool, first=self._certificates)

    def address(self) -> Address:
        """See base class."""
        return Address(EVERYWHERE, self._hosts, 0)

    def loss_reasons(self) -> TaskFailures | None:
        """See base class. None: Spark's driver, which knows them, is elsewhere."""
        return None

    def announcements(self) -> AnnouncedLosses | None:
        """See base class."""
        return None

    def outlook(self, agents: int) -> Callable[[], str]:
        """See base class."""
        return str

    def batch(
        self, ticket: AgentTicket, slots: range, held: Sequence[int], on_end: OnBatchEnd, *, without_gpus: bool
    ) -> AdoptedBatch:
        """See base class."""
        return AdoptedBatch(self._publish, ticket.port)

    def refused_s(self) -> float | None:
        """See base class."""
        return None
