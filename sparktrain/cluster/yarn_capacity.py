"""Whether YARN has room for a session's executors: neither Spark nor YARN reports an executor that can never start.

Pure: from the status that the ResourceManager reports, to reasons and text.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from sparktrain.base import formatting
from sparktrain.cluster import spark_settings

QUEUE_KEY = "spark.yarn.queue"
LABEL_KEY = "spark.yarn.executor.nodeLabelExpression"
_MEMORY = "memory-mb"
_CORES = "vcores"
_GPUS = "yarn.io/gpu"
_KEY_OF = {
    _MEMORY: "spark.executor.memory",
    _CORES: "spark.executor.cores",
    _GPUS: "spark.executor.resource.gpu.amount",
}
OVERHEAD_KEY = "spark.executor.memoryOverhead"
_FACTOR_KEY = "spark.executor.memoryOverheadFactor"
_LEAST_OVERHEAD_KEY = "spark.executor.minMemoryOverhead"
_PYTHON_KEY = "spark.executor.pyspark.memory"
_OFF_HEAP_KEYS = ("spark.memory.offHeap.enabled", "spark.memory.offHeap.size")
_YARN_GPUS_KEY = "spark.yarn.executor.resource.yarn.io/gpu.amount"
KEYS = (
    *(QUEUE_KEY, LABEL_KEY, *_KEY_OF.values(), OVERHEAD_KEY, _FACTOR_KEY, _LEAST_OVERHEAD_KEY, _PYTHON_KEY),
    *(*_OFF_HEAP_KEYS, _YARN_GPUS_KEY, "spark.app.id"),
)
"""The keys of Spark's configuration that determine the request to YARN."""

_SIZE = re.compile(r"(\d+)\s*([kmgtp]?)i?b?", re.IGNORECASE)
_MIB_OF = {"k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0**2, "p": 1024.0**3}
_MOST_HOLDERS = 3
_OUT_OF_SERVICE = ("DECOMMISSIONED", "DECOMMISSIONING")

Amounts = Mapping[str, int]
"""The amount of each resource; memory in MiB."""


class Demand(Struct, frozen=True):
    """The resources of one executor, and the queue and label that provide them."""

    amounts: dict[str, int]
    queue: str = "default"
    label: str | None = None
    """None for the default label of the queue."""
    application: str | None = None


class YarnStatus(Struct, frozen=True):
    """The state of the cluster at one time: parts of answers of the ResourceManager's REST API."""

    scheduler: dict[str, Any]
    nodes: list[dict[str, Any]]
    applications: list[dict[str, Any]]
    """The applications that hold resources."""


def demand_of(conf: Mapping[str, str]) -> Demand:
    """The resources that Spark's configuration requests for an executor. Raises SessionError for what is no number."""
    memory = heap_mib(conf) + beside_heap_mib(conf)
    if conf.get(_OFF_HEAP_KEYS[0]) == "true":
        memory += _mib(conf.get(_OFF_HEAP_KEYS[1], "0"), "")
    gpus = spark_settings.whole(conf, _KEY_OF[_GPUS], "0") or spark_settings.whole(conf, _YARN_GPUS_KEY, "0")
    amounts = {
        _MEMORY: memory,
        _CORES: spark_settings.whole(conf, _KEY_OF[_CORES], "1"),
        **({_GPUS: gpus} if gpus else {}),
    }
    return Demand(amounts, conf.get(QUEUE_KEY) or "default", conf.get(LABEL_KEY) or None, conf.get("spark.app.id"))


def heap_mib(conf: Mapping[str, str]) -> int:
    """Memory of an executor's JVM heap."""
    return _mib(conf.get(_KEY_OF[_MEMORY], "1g"), "m")


def beside_heap_mib(conf: Mapping[str, str]) -> int:
    """Memory of an executor's container outside its JVM's heap, above all for Python processes."""
    least = _mib(conf.get(_LEAST_OVERHEAD_KEY, "384m"), "m")
    overhead = max(int(heap_mib(conf) * spark_settings.amount(conf, _FACTOR_KEY, "0.1")), least)
    if OVERHEAD_KEY in conf:
        overhead = _mib(conf[OVERHEAD_KEY], "m")
    return overhead + _mib(conf.get(_PYTHON_KEY, "0"), "m")


def refusal(demand: Demand, status: YarnStatus) -> str:
    """Why no executor can ever start, and what to do; empty when no reason is known."""
    if status.scheduler.get("type") != "capacityScheduler":
        return ""  # other schedulers have neither labels nor such queues
    queues = list(_leaves(status.scheduler))
    queue = _queue_of(demand, status)
    if queue is None:
        return (
            f"YARN has no queue {demand.queue} ({QUEUE_KEY}): set it to one of "
            f"{', '.join(sorted(leaf['queueName'] for leaf in queues))}"
        )
    if queue.get("state", "RUNNING") != "RUNNING":
        return f"queue {queue['queueName']} of YARN is {queue['state']}: set {QUEUE_KEY} to another"
    return _refused_label(demand, queue, status) or _too_large(demand, queue, status)


def summary(status: YarnStatus) -> str:
    """The nodes, labels and queues of the cluster, in a few words."""
    running = [node for node in status.nodes if node["state"] == "RUNNING"]
    labels = {_label_of(node) for node in running} - {""}
    queues = [_name(queue) for queue in _leaves(status.scheduler)]
    parts = [formatting.count(len(running), "running node")]
    parts += [f"labels: {_listed(labels)}"] if labels else []
    parts += [f"queues: {_listed(queues)}"] if queues else []
    return "; ".join(parts)


def out_of_service(host: str, nodes: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a host has a node, among `nodes`, that is decommissioned or about to be."""
    return any(node.get("nodeHostName") == host and node["state"] in _OUT_OF_SERVICE for node in nodes)


def outlook(demand: Demand, executors: int, status: YarnStatus) -> str:
    """How many of `executors` fit at present, and which applications hold the rest; empty when all fit."""
    if reason := refusal(demand, status):
        return reason
    queue = _queue_of(demand, status)
    label = _label(demand, queue)
    need = _rounded(demand.amounts, queue)
    nodes = [node for node in status.nodes if _label_of(node) == label]
    running = [node for node in nodes if node["state"] == "RUNNING"]
    where = f"{_named(label)}{f' in queue {_name(queue)}' if queue is not None else ''}"
    if not running:
        states = ", ".join(f"{node['id']} is {node['state']}" for node in nodes) or "there is none"
        return f"no node {where} is running: {states}"
    mine = _application_executors(demand, label, need, status)
    free = sum(_times(need, _free(node)) for node in running)
    capacity = sum(_times(need, _total(node)) for node in running)
    if (limit := _limit(queue, label)) is not None and queue is not None:
        capacity = min(capacity, _times(need, limit))
        free = min(free, _times(need, _less(limit, _used(queue, label))))
    # With 8 executors requested and room for 4, neither Spark nor YARN logs a line: four tasks run, and four wait for
    # ever.
    if mine + free >= executors:
        return ""
    fit = f"{mine + free} of {formatting.count(executors, 'executor')} fit nodes {where} now"
    return "; ".join([fit, f"capacity {capacity} x ({_shown(need)})", *_holders(demand, label, status)])


# ---- why not


def _refused_label(demand: Demand, queue: Mapping[str, Any], status: YarnStatus) -> str:
    label = _label(demand, queue)
    if not label or _may_use(queue, label):
        return ""
    queues = list(_leaves(status.scheduler))
    of_queues = {name for leaf in queues for name in leaf.get("nodeLabels") or ()}
    names = ({_label_of(node) for node in status.nodes} | of_queues) - {"", "*"}
    if label not in names:
        return (
            f"no node of YARN has label {label} ({LABEL_KEY}): "
            f"{f'there are {_listed(names)}; set it to one of these' if names else 'there are no labels: leave it out'}"
        )
    allowed_queues = [leaf["queueName"] for leaf in queues if _may_use(leaf, label)]
    csv = _listed(queue.get("nodeLabels") or ()) or "none"
    return (
        f"queue {_name(queue)} may not use label {label} ({LABEL_KEY}), its labels: {csv}; set {QUEUE_KEY} to one that "
        f"may: {_listed(allowed_queues) or 'there is none'}"
    )


def _too_large(demand: Demand, queue: Mapping[str, Any], status: YarnStatus) -> str:
    label = _label(demand, queue)
    need = demand.amounts
    largest = _amounts(queue.get("maximumAllocation") or status.scheduler.get("maximumAllocation") or {})
    for name, amount in need.items():
        if amount > largest.get(name, amount):
            return (
                f"an executor needs {_shown({name: amount})}, and YARN gives a container at most "
                f"{_shown({name: largest[name]})}: lower {_KEY_OF[name]}"
            )
    nodes = [_total(node) for node in status.nodes if node["state"] == "RUNNING" and _label_of(node) == label]
    for name, amount in need.items():
        most_there = max((total.get(name, 0) for total in nodes), default=amount)
        if amount > most_there:
            return (
                f"an executor needs {_shown({name: amount})}, and no node {_named(label)} has more than "
                f"{_shown({name: most_there})}: lower {_KEY_OF[name]}"
            )
    return ""


def _may_use(queue: Mapping[str, Any], label: str) -> bool:
    return bool({label, "*"} & set(queue.get("nodeLabels") or ()))


# ---- queues


def _leaves(queue: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """All queues below one to which applications can be submitted."""
    children = _list((queue.get("queues") or {}).get("queue"))
    for child in children:
        yield from _leaves(child) if (child.get("queues") or {}).get("queue") else [child]


def _queue_of(demand: Demand, status: YarnStatus) -> Mapping[str, Any] | None:
    """The queue of the application, or the one that it requests."""
    mine = (str(app["queue"]) for app in status.applications if app["id"] == demand.application)
    name = next(mine, demand.queue)
    queues = [queue for queue in _leaves(status.scheduler) if name in _names(queue)]
    return queues[0] if queues else None


def _names(queue: Mapping[str, Any]) -> set[str]:
    path = str(queue.get("queuePath") or queue["queueName"])
    return {queue["queueName"], path, path.removeprefix("root.")}


def _label(demand: Demand, queue: Mapping[str, Any] | None) -> str:
    default = str((queue or {}).get("defaultNodeLabelExpression") or "").strip()
    return demand.label if demand.label is not None else default


def _partition(queue: Mapping[str, Any], part: str, parts: str, label: str) -> Mapping[str, Any]:
    """What a queue reports about one label."""
    partitions = _list((queue.get(part) or {}).get(parts))
    return next((partition for partition in partitions if partition.get("partitionName", "") == label), {})


def _limit(queue: Mapping[str, Any] | None, label: str) -> Amounts | None:
    """The most that a queue may have of the nodes with the label; None where it does not report it."""
    maximum = _partition(queue or {}, "capacities", "queueCapacitiesByPartition", label).get("effectiveMaxResource")
    return _amounts(maximum) if maximum else None


def _used(queue: Mapping[str, Any], label: str) -> Amounts:
    return _amounts(_partition(queue, "resources", "resourceUsagesByPartition", label).get("used") or {})


def _rounded(need: Amounts, queue: Mapping[str, Any] | None) -> Amounts:
    """`need` with memory rounded up to a multiple of YARN's minimum."""
    smallest = (
        _partition(queue or {}, "capacities", "queueCapacitiesByPartition", "").get("configuredMinResource") or {}
    )
    # An executor of 512 MB, with 384 MB beside its heap, takes 896 MB where YARN counts in steps of 128 MB: without the
    # rounding more of them seem to fit than YARN starts.
    least = max(1, _information(smallest, "minimumAllocation").get(_MEMORY, 1))
    return {**need, _MEMORY: -(-need[_MEMORY] // least) * least}


# ---- nodes and applications


def _label_of(node: Mapping[str, Any]) -> str:
    return next(iter(_list(node.get("nodeLabels"))), "")


def _free(node: Mapping[str, Any]) -> Amounts:
    return _amounts(node.get("availableResource") or _plain(node["availMemoryMB"], node["availableVirtualCores"]))


def _total(node: Mapping[str, Any]) -> Amounts:
    used = node.get("usedResource") or _plain(node["usedMemoryMB"], node["usedVirtualCores"])
    free = _free(node)
    return {name: amount + free.get(name, 0) for name, amount in _amounts(used).items()}


def _application_executors(demand: Demand, label: str, need: Amounts, status: YarnStatus) -> int:
    """How many executors the application has already."""
    mine = next((app for app in status.applications if app["id"] == demand.application), None)
    if mine is None:
        return 0
    if not label:  # the application master is there too
        return max(0, int(mine.get("runningContainers", 1)) - 1)
    return _times(need, _held(mine, label))


def _held(application: Mapping[str, Any], label: str) -> Amounts:
    usage = _partition(application, "resourceInfo", "resourceUsagesByPartition", label)
    return _amounts(usage.get("used") or {})


def _holders(demand: Demand, label: str, status: YarnStatus) -> list[str]:
    """The other applications on the nodes with the label, the largest first."""
    held = [(_some(_held(app, label)), app) for app in status.applications if app["id"] != demand.application]
    holders = sorted((pair for pair in held if pair[0]), key=lambda pair: -pair[0].get(_MEMORY, 0))
    names = [
        f"{app['id']} ({app['name']} of {app['user']}, {_shown(amounts)})" for amounts, app in holders[:_MOST_HOLDERS]
    ]
    remainder = [f"{len(holders) - _MOST_HOLDERS} more"] if len(holders) > _MOST_HOLDERS else []
    return [f"held by {', '.join(names + remainder)}"] if names else []


# ---- amounts


def _amounts(resource: Mapping[str, Any]) -> Amounts:
    """The amounts in a resource as the REST API writes it."""
    return {
        _MEMORY: int(resource.get("memory", 0)),
        _CORES: int(resource.get("vCores", 0)),
        **_information(resource, "value"),
    }


def _information(resource: Mapping[str, Any], field: str) -> dict[str, int]:
    entries = _list((resource.get("resourceInformations") or {}).get("resourceInformation"))
    return {str(entry["name"]): int(entry[field]) for entry in entries if field in entry}


def _plain(memory: int, cores: int) -> dict[str, int]:
    return {"memory": memory, "vCores": cores}


def _times(need: Amounts, capacity: Amounts) -> int:
    """How many times `need` fits."""
    return max(0, min(capacity.get(name, 0) // amount for name, amount in need.items() if amount))


def _some(amounts: Amounts) -> Amounts:
    return {name: amount for name, amount in amounts.items() if amount}


def _less(limit: Amounts, used: Amounts) -> Amounts:
    return {name: amount - used.get(name, 0) for name, amount in limit.items()}


def _shown(amounts: Amounts) -> str:
    names = {_MEMORY: "MB", _CORES: "core", _GPUS: "GPU"}
    parts = {name: amounts[name] for name in names if name in amounts}
    return ", ".join(f"{n} MB" if name == _MEMORY else formatting.count(n, names[name]) for name, n in parts.items())


def _named(label: str) -> str:
    return f"with label {label}" if label else "without label"


def _name(queue: Mapping[str, Any]) -> str:
    return str(queue["queueName"])


def _listed(names: Sequence[str] | set[str]) -> str:
    return ", ".join(sorted(names))


def _list(value: Any) -> list[Any]:
    """`value` as a list: some versions write a list of one element as that element."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _mib(size: str, unit: str) -> int:
    """The MiB of a size in Spark's format; `unit` is that of a size that names none, and "" stands for bytes."""
    match = _SIZE.fullmatch(size.strip())
    if match is None:
        return 0  # Spark rejects it
    number = int(match[1])
    named = (match[2] or unit).lower()
    return int(number * _MIB_OF[named]) if named else number // 2**20
