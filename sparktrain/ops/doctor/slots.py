"""What the answers of a session's slots mean for a run, decided from them alone."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations

from msgspec import Struct

from sparktrain.base import formatting
from sparktrain.cluster.check_finding import Finding, Level, failed, of_message, passed, warned
from sparktrain.cluster.launch_warnings import PYTHON_MIB, Driver
from sparktrain.config.versions import COMPARED, mismatch
from sparktrain.driver.engines.job_failures import unreachable
from sparktrain.driver.gpu_claims import conflict
from sparktrain.protocol.checkup_report import SlotReport

CLOCK_WARN_S = 2.0
"""Above it, the times in logs of different hosts cannot be compared."""
CLOCK_FAIL_S = 300.0
"""Above it, Kerberos refuses tickets."""
SHARED_MEMORY_MIB = 512
"""With less, state of a small model does not fit."""
_MOST = 4


class Roll(Struct, frozen=True):
    """The answers of the slots to the doctor's query."""

    queried_slots: int
    """How many slots were queried."""
    answers: tuple[SlotReport, ...] = ()
    error: str = ""
    """Why some or all slots did not answer."""


def slots_findings(roll: Roll, driver: Driver, gpus: bool, *, remote: bool = False) -> list[Finding]:
    """The findings from all answers; `gpus`: Spark should give each slot one or more GPUs, `remote`: the session is of
    Spark Connect, so that executors need not reach this process."""
    answers = roll.answers
    if not answers:
        step = "repeat it when the executors have started; else see the log of Spark's driver and executors"
        return [failed("executors", f"no slot has answered: {roll.error}", step)]
    checks = [_came(roll), *_reached(answers, remote), *_versions(answers, driver), *_java(answers, driver)]
    checks += [*_between(answers), *_dns(answers), *_clocks(answers)]
    return [*checks, *_gpus(answers, gpus), *_memories(answers), *_store(answers)]


def _came(roll: Roll) -> Finding:
    late = [answer for answer in roll.answers if answer.visit.late]
    hosts = _hosts(roll.answers)
    # All of them late means that executors start slowly, not that they take turns: on a busy host both need more than
    # 20 s.
    if late and len(late) == roll.queried_slots:
        return warned(
            "executors",
            f"no slot was ready in time to connect to another one, on {hosts}: executors start slowly now",
            "repeat it when the executors run; else see what else these hosts do",
        )
    if late:
        return warned(
            "executors",
            f"{len(late)} of {formatting.count(roll.queried_slots, 'slot')} started when the others had ended: they "
            f"do not run side by side now, and a gang of all would wait",
            "end the other jobs on the session's slots, or give the session more executors",
        )
    if len(roll.answers) < roll.queried_slots:
        answered = f"{len(roll.answers)} of {formatting.count(roll.queried_slots, 'slot')} answered"
        return warned("executors", f"{answered}: {roll.error}", "see the log of Spark's driver and executors")
    return passed("executors", f"{formatting.count(roll.queried_slots, 'slot')} answered, on {hosts}")


def _reached(answers: Sequence[SlotReport], remote: bool) -> list[Finding]:
    lost = [answer for answer in answers if answer.visit.problem]
    if not lost:
        place = ": the coordinator of a run is in this process" if remote else ""
        return [passed("driver reachable", f"every slot connects to the driver, by mutual TLS{place}")]
    first = f"slot {lost[0].slot} on {lost[0].host}: {lost[0].visit.problem}"
    if remote and len(lost) == len(answers):
        return [
            warned(
                "driver reachable",
                f"executors cannot reach this client ({first}): the coordinator of a run is in the cluster",
                "pass a dir= that all hosts reach, such as hdfs:///runs or s3://bucket/runs",
            )
        ]
    extent = f" ({len(lost)} of {len(answers)} slots)" if len(answers) > 1 else ""
    return [of_message("driver reachable", Level.FAIL, unreachable(first + extent))]


def _versions(answers: Sequence[SlotReport], driver: Driver) -> list[Finding]:
    """A launch refuses versions other than the driver's; executors must also agree on what the driver lacks."""
    compared = {name: version for name, version in driver.versions.items() if name in ("python", *COMPARED)}
    refused = {
        answer.host: text for answer in answers if (text := mismatch(compared, answer.software.versions, answer.host))
    }
    findings = [of_message("versions", Level.FAIL, text) for text in list(refused.values())[:_MOST]]
    other_names = [name for name in ("tensorflow", "keras", "horovod") if name not in compared]
    findings += [finding for name in other_names for finding in _among(answers, name, driver.versions.get(name))]
    findings += _without_tensorflow(answers)
    if findings:
        return findings
    versions = ", ".join(f"{name} {version}" for name, version in answers[0].software.versions.items())
    return [passed("versions", f"the same on all hosts: {versions}")]


def _among(answers: Sequence[SlotReport], name: str, driver: str | None) -> list[Finding]:
    by_version = _by(answers, lambda report: report.software.versions.get(name, "missing"))
    if driver is not None and set(by_version) != {driver}:
        by_version = {**by_version, driver: [*by_version.get(driver, []), "the driver"]}
    if len(by_version) < 2:
        return []
    parts = [f"{version} on {_listed(hosts)}" for version, hosts in by_version.items()]
    return [
        failed("versions", f"{name} is not the same everywhere: {', '.join(parts)}", "install the same versions on all")
    ]


def _without_tensorflow(answers: Sequence[SlotReport]) -> list[Finding]:
    if any("tensorflow" in answer.software.versions for answer in answers):
        return []
    step = "install sparktrain[tensorflow] on every host, or ship it with --archives"
    return [
        warned("versions", f"TensorFlow is not installed on {_hosts(answers)}: functions that import it fail", step)
    ]


def _java(answers: Sequence[SlotReport], driver: Driver) -> list[Finding]:
    with_java = [answer for answer in answers if answer.software.java]
    by_version = _by(with_java, lambda report: report.software.java.partition(".")[0])
    driver_major = driver.java.partition(".")[0]
    different = {version: hosts for version, hosts in by_version.items() if driver_major and version != driver_major}
    return [
        warned(
            "java", f"Java is {driver.java} on the driver and {version} on {_listed(hosts)}", "use one Java everywhere"
        )
        for version, hosts in different.items()
    ]


def _between(answers: Sequence[SlotReport]) -> list[Finding]:
    tried = [(answer, peer) for answer in answers for peer in answer.visit.peers]
    lost = [(answer, peer) for answer, peer in tried if peer.problem]
    if not tried:
        return []
    if not lost:
        hosts = len({answer.host for answer in answers})
        return [
            passed(
                "ports",
                f"slots reach each other: {formatting.count(len(tried), 'connection')}, "
                f"{formatting.count(hosts, 'host')}",
            )
        ]
    answer, peer = lost[0]
    rate = f" ({len(lost)} of {len(tried)} connections failed)" if len(tried) > 1 else ""
    return [
        failed(
            "ports",
            f"{answer.host} cannot connect to {peer.host} at {peer.address}, port {peer.port}: {peer.problem}{rate}; a "
            f"gang on both cannot start",
            "let the hosts of executors connect to each other, on any port above 1023",
        )
    ]


def _clocks(answers: Sequence[SlotReport]) -> list[Finding]:
    visits = [(answer, answer.visit) for answer in answers]
    offsets = [(answer, abs(visit.ahead_s) - visit.margin_s) for answer, visit in visits if visit.ahead_s is not None]
    if not offsets:
        return []
    worst, off_s = max(offsets, key=lambda pair: pair[1])
    if off_s <= CLOCK_WARN_S:
        return [passed("clock", f"no host is more than {CLOCK_WARN_S:g} s from the driver's time")]
    side = "ahead of" if (worst.visit.ahead_s or 0.0) > 0 else "behind"
    off = f"the clock of {worst.host} is {off_s:.1f} s {side} the driver's"
    step = f"have {worst.host} and the driver keep time by NTP (chronyc tracking)"
    if off_s > CLOCK_FAIL_S:
        return [failed("clock", f"{off}; Kerberos refuses tickets from {CLOCK_FAIL_S:g} s on", step)]
    return [warned("clock", f"{off}; times of logs cannot be compared", step)]


def _gpus(answers: Sequence[SlotReport], gpus: bool) -> list[Finding]:
    if not gpus:
        return []
    if without := [answer for answer in answers if not answer.gpus]:
        step = "check the script of spark.executor.resource.gpu.discoveryScript; conf/gpu-discovery.sh is an example"
        return [
            failed("gpus", f"no GPU was given to {formatting.count(len(without), 'slot')} on {_hosts(without)}", step)
        ]
    pairs = combinations([answer for answer in answers if not answer.visit.late], 2)
    if shared := next(filter(None, (conflict(answer, peer) for answer, peer in pairs)), ""):
        return [of_message("gpus", Level.FAIL, shared)]
    held = {(answer.host, answer.address, device) for answer in answers for device in answer.devices}
    return [passed("gpus", f"{formatting.count(len(held), 'GPU')} on {_hosts(answers)}")]


def _dns(answers: Sequence[SlotReport]) -> list[Finding]:
    """Only pods try it."""
    pods = [answer for answer in answers if answer.visit.dns is not None]
    without = [answer for answer in pods if answer.visit.dns]
    if without:
        return [
            warned(
                "dns",
                f"pods do not resolve kubernetes.default.svc ({without[0].visit.dns}), on {_hosts(without)}: they "
                "reach stores and services by address alone",
                "have the cluster's DNS run, and let pods reach it on port 53: a policy of the network may forbid that",
            )
        ]
    return [passed("dns", "pods resolve names of the cluster")] if pods else []


def _memories(answers: Sequence[SlotReport]) -> list[Finding]:
    return [*_memory(answers), _shared_memory(answers)]


def _shared_memory(answers: Sequence[SlotReport]) -> Finding:
    """A container has 64 MiB of it by default, also where its limit of memory is large."""
    least = min(answers, key=lambda answer: answer.shared_memory_bytes)
    size = f"{formatting.size(least.shared_memory_bytes)} on {least.host}"
    if least.shared_memory_bytes >= SHARED_MEMORY_MIB * 2**20:
        return passed("shared memory", f"at least {size}")
    return warned(
        "shared memory",
        f"/dev/shm has {size}: memory checkpoints do not fit, and workers of PyTorch's DataLoader may end by SIGBUS",
        "mount an emptyDir of medium Memory at /dev/shm, as conf/kubernetes/executor.yaml does; for Docker, --shm-size",
    )


def _memory(answers: Sequence[SlotReport]) -> list[Finding]:
    slots = Counter(answer.host for answer in answers if not answer.visit.late)
    free = {answer.host: answer.free_bytes for answer in answers}
    short = [host for host in slots if free[host] < slots[host] * PYTHON_MIB * 2**20]
    if not short:
        host = min(free, key=lambda name: free[name])
        return [passed("free memory", f"at least {formatting.size(free[host])}, on {host}")]
    host = short[0]
    return [
        warned(
            "free memory",
            f"{host} has {formatting.size(free[host])} free for {formatting.count(slots[host], 'slot')}, each of "
            f"which uses about {PYTHON_MIB} MiB with TensorFlow before there is a model",
            "end other programs there, or give it fewer slots (a larger spark.task.cpus)",
        )
    ]


def _store(answers: Sequence[SlotReport]) -> list[Finding]:
    if lost := [answer for answer in answers if answer.visit.store]:
        message = f"from {_hosts(lost)}: {lost[0].visit.store}"
        return [of_message("store on executors", Level.FAIL, message)]
    apart = [answer for answer in answers if answer.visit.shared is False]
    if apart:
        return [
            failed(
                "store on executors",
                f"{_hosts(apart)} does not see what the driver writes: checkpoints would be lost with the host",
                "pass --dir on storage that all hosts share, such as hdfs:///runs",
            )
        ]
    if any(answer.visit.shared for answer in answers):
        return [passed("store on executors", "every slot writes to it, and sees what the driver writes")]
    return []


def _hosts(answers: Sequence[SlotReport]) -> str:
    return _listed([answer.host for answer in answers])


def _listed(hosts: Sequence[str]) -> str:
    names = list(dict.fromkeys(map(formatting.plain, hosts)))
    suffix = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + suffix


def _by(answers: Sequence[SlotReport], key: Callable[[SlotReport], str]) -> dict[str, list[str]]:
    """The hosts by the key of their answers."""
    hosts_by_key: dict[str, list[str]] = {}
    for answer in answers:
        hosts_by_key.setdefault(key(answer), []).append(answer.host)
    return hosts_by_key
