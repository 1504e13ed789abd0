"""How YARN is configured for tests: one label, three queues, and everything that is periodic made fast."""

from dataclasses import dataclass

from tests.support.hadoop.conf import Site

LABEL = "gpu"
QUEUES = ("default", "prio", "nogpu")
"""`default` and `prio` share the labelled node half and half, and each may use all of it; `nogpu` may not use it."""
MEMORY_MIB = 4096
"""Of each node, and at most of a container."""
CORES = 4
"""Of each node, and at most of a container."""

_PREEMPTION = "yarn.resourcemanager.monitor.capacity.preemption"
_QUEUE = "yarn.scheduler.capacity.root"
_CAPACITY = {"default": 50, "prio": 40, "nogpu": 10}
_SETTINGS = {
    "yarn.node-labels.enabled": "true",
    "yarn.scheduler.minimum-allocation-mb": "128",
    "yarn.scheduler.maximum-allocation-mb": str(MEMORY_MIB),
    "yarn.scheduler.maximum-allocation-vcores": str(CORES),
    "yarn.nodemanager.resource.memory-mb": str(MEMORY_MIB),
    "yarn.nodemanager.resource.cpu-vcores": str(CORES),
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.resource.memory.enforced": "false",  # by cgroups; else the check of memory does nothing
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.5",
    # Without HADOOP_CONF_DIR: a node of a real cluster need not have the submitter's configuration, nor any.
    "yarn.nodemanager.env-whitelist": "JAVA_HOME,PATH,LANG,TZ",
    "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
    "yarn.resourcemanager.connect.retry-interval.ms": "500",
    "yarn.resourcemanager.work-preserving-recovery.scheduling-wait-ms": "1000",
    "yarn.am.liveness-monitor.expiry-interval-ms": "300000",  # a node unpacks the pack of a container meanwhile
}


@dataclass(frozen=True)
class Knobs:
    """What tests of faults set."""

    expiry_s: float = 600.0
    """A NodeManager that is silent for so long is lost, and its containers with it; noticed a third of it later."""
    keep_containers: bool = False
    """Containers outlive their NodeManager, which takes them over when it restarts."""
    keep_applications: bool = True
    """Applications outlive the ResourceManager, and their containers continue while it is down."""
    preempt: bool = False
    """A queue takes back what another holds beyond its share, 3 s after it was asked for."""
    enforce_memory: bool = False
    """Containers that use more memory than they asked for are killed, within 3 s."""
    gpus: int = 0
    """Of the resource `yarn.io/gpu`, on the labelled node: counted, and not there."""


def site(knobs: Knobs, state: str) -> dict[str, str]:
    """Settings of the ResourceManager, the NodeManagers and clients; `state` is the URL of what the first keeps."""
    chosen = {
        "yarn.nm.liveness-monitor.expiry-interval-ms": _ms(knobs.expiry_s),
        "yarn.nodemanager.pmem-check-enabled": _flag(knobs.enforce_memory),
        "yarn.nodemanager.recovery.enabled": _flag(knobs.keep_containers),
        "yarn.nodemanager.recovery.supervised": _flag(knobs.keep_containers),
        "yarn.resourcemanager.recovery.enabled": _flag(knobs.keep_applications),
        "yarn.resourcemanager.work-preserving-recovery.enabled": _flag(knobs.keep_applications),
        "yarn.resourcemanager.store.class": (
            "org.apache.hadoop.yarn.server.resourcemanager.recovery.FileSystemRMStateStore"
        ),
        "yarn.resourcemanager.fs.state-store.uri": f"{state}/applications",
        "yarn.node-labels.fs-store.root-dir": f"{state}/labels",
        "yarn.node-attribute.fs-store.root-dir": f"{state}/attributes",
    }
    if knobs.preempt:
        chosen |= {
            "yarn.resourcemanager.scheduler.monitor.enable": "true",
            f"{_PREEMPTION}.monitoring_interval": "1000",
            f"{_PREEMPTION}.max_wait_before_kill": "3000",
            f"{_PREEMPTION}.total_preemption_per_round": "1.0",
            f"{_PREEMPTION}.natural_termination_factor": "1.0",
            f"{_PREEMPTION}.max_ignored_over_capacity": "0.0",
        }
    return {**_SETTINGS, **chosen}


def resource_types(knobs: Knobs) -> dict[str, Site]:
    """The file that all need in order to know of GPUs; none where there are none."""
    return {"resource-types": {"yarn.resource-types": "yarn.io/gpu"}} if knobs.gpus else {}


def scheduler_site() -> dict[str, str]:
    """The queues, for the ResourceManager."""
    chosen = {
        "yarn.scheduler.capacity.maximum-am-resource-percent": "0.9",
        "yarn.scheduler.capacity.node-locality-delay": "-1",
        "yarn.scheduler.capacity.resource-calculator": (
            "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"
        ),
        f"{_QUEUE}.queues": ",".join(QUEUES),
        f"{_QUEUE}.accessible-node-labels": "*",
        f"{_QUEUE}.accessible-node-labels.{LABEL}.capacity": "100",
        f"{_QUEUE}.nogpu.accessible-node-labels": " ",  # none; without it, as its parent
    }
    for name in QUEUES:
        chosen |= {
            f"{_QUEUE}.{name}.capacity": str(_CAPACITY[name]),
            f"{_QUEUE}.{name}.maximum-capacity": "100",
            f"{_QUEUE}.{name}.user-limit-factor": "10",
        }
    for name in ("default", "prio"):
        chosen |= {
            f"{_QUEUE}.{name}.accessible-node-labels": LABEL,
            f"{_QUEUE}.{name}.accessible-node-labels.{LABEL}.capacity": "50",
            f"{_QUEUE}.{name}.accessible-node-labels.{LABEL}.maximum-capacity": "100",
            f"{_QUEUE}.{name}.accessible-node-labels.{LABEL}.maximum-am-resource-percent": "0.9",
        }
    return chosen


def _ms(seconds: float) -> str:
    return str(round(seconds * 1000))


def _flag(on: bool) -> str:
    return "true" if on else "false"
