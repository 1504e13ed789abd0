"""Settings of Spark that harm agents, which are Python workers that send no rows before their end. Pure."""

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

from msgspec import Struct

from sparktrain.cluster.check_finding import Finding, Level
from sparktrain.errors import SessionError

PYTHON_MEMORY_KEY = "spark.executor.pyspark.memory"
_OF_SQL = "spark.sql.execution.pyspark.udf."
_OF_WORKERS = "spark.python.worker."
_KILL = "killOnIdleTimeout"
_TIMEOUT = "idleTimeoutSeconds"
_HEARTBEATS = "spark.storage.blockManagerHeartbeatTimeoutMs"
_EXCLUSION = "spark.excludeOnFailure."
_TIME = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d|)", re.IGNORECASE)
_IN_SECONDS = ("spark.network.timeout",)
"""Keys with times that are in seconds where they name no unit; others are in milliseconds."""
_SECONDS_OF = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_NO_EXCLUSION = "set it to false: sparktrain leaves out agents and hosts that fail"


class HarmfulSetting(Struct, frozen=True, kw_only=True):
    """A setting, what it does to agents, and what to do about it."""

    check: str
    level: Level
    keys: tuple[str, ...]
    """The first one that is set decides."""
    needs: tuple[str, ...] = ()
    """It harms only where the first one of these that is set is not 0."""
    below_s: float | None = None
    """It harms only where the one in `needs` is a time below this."""
    effect: str
    fix: str


HARMFUL = (
    HarmfulSetting(
        check="idle timeout",
        level=Level.FAIL,
        keys=(_OF_SQL + _KILL, _OF_WORKERS + _KILL),
        needs=(_OF_SQL + _TIMEOUT, _OF_WORKERS + _TIMEOUT),
        effect="Spark ends a Python worker that sends no rows for that long, and agents send none before their end "
        f"({_OF_WORKERS}{_KILL} sets it for a whole session)",
        fix=f"call spark.conf.set('{_OF_SQL}{_KILL}', 'false'), which works in an open session",
    ),
    HarmfulSetting(
        check="python memory",
        level=Level.WARN,
        keys=(PYTHON_MEMORY_KEY,),
        effect="it limits the address space of each process that trains, and TensorFlow alone maps more than 1 GiB: "
        "libraries then fail to load, or agents do not start",
        fix="leave it out, and give the memory to spark.executor.memoryOverhead",
    ),
    HarmfulSetting(
        check="exclusion",
        level=Level.WARN,
        keys=(_EXCLUSION + "application.enabled", _EXCLUSION + "enabled"),
        effect="after a loss Spark may start no agent on that executor or host, and a gang then waits for one in vain",
        fix=_NO_EXCLUSION,
    ),
    HarmfulSetting(
        check="exclusion",
        level=Level.WARN,
        keys=(_EXCLUSION + "taskAndStage.enabled", _EXCLUSION + "enabled"),
        effect="after a loss Spark may not start that agent again on its executor or host, and a gang waits for it in "
        "vain",
        fix=_NO_EXCLUSION,
    ),
    HarmfulSetting(
        check="exclusion",
        level=Level.WARN,
        keys=(_EXCLUSION + "killExcludedExecutors",),
        needs=(_EXCLUSION + "application.enabled", _EXCLUSION + "enabled"),
        effect="after a loss Spark may end an executor with all agents that train there",
        fix=_NO_EXCLUSION,
    ),
    HarmfulSetting(
        check="exclusion",
        level=Level.WARN,
        keys=("spark.yarn.executor.launch.excludeOnFailure.enabled",),
        effect="after failed containers Spark may request none on that node, and a gang then waits in vain",
        fix=_NO_EXCLUSION,
    ),
    HarmfulSetting(
        check="task reaper",
        level=Level.WARN,
        keys=("spark.task.reaper.enabled",),
        needs=("spark.task.reaper.killTimeout",),
        below_s=60.0,
        effect="when a run ends, an agent may take 30 s to end what it trains; Spark then ends its executor, with the "
        "agents of other runs there",
        fix="set spark.task.reaper.killTimeout=120s, its default, or more",
    ),
    HarmfulSetting(
        check="heartbeats",
        level=Level.WARN,
        keys=(_HEARTBEATS, "spark.network.timeout"),
        needs=(_HEARTBEATS, "spark.network.timeout"),
        below_s=60.0,
        effect="Spark gives up an executor, with its agents, that sends no heartbeat for so long, and training may "
        "keep all cores of a host busy",
        fix="set it to 120s, its default, or more",
    ),
    HarmfulSetting(
        check="executor rolling",
        level=Level.WARN,
        keys=("spark.kubernetes.executor.rollInterval",),
        effect="Spark ends an executor each time after so long, and what trains there restarts or moves",
        fix="set it to 0",
    ),
    HarmfulSetting(
        check="dynamic allocation",
        level=Level.WARN,
        keys=("spark.dynamicAllocation.enabled",),
        effect="executors start one after another while agents wait for slots, and a gang starts when the last one has "
        "started",
        fix="set it to false and spark.executor.instances, or max_concurrent_trials= (agents= of run and pool) and "
        "enough start_timeout",
    ),
    HarmfulSetting(
        check="speculation",
        level=Level.WARN,
        keys=("spark.speculation",),
        effect="Spark may start a second agent beside one that takes long, and the second one occupies a slot",
        fix="set it to false",
    ),
)
KEYS = tuple(dict.fromkeys(key for setting in HARMFUL for key in (*setting.keys, *setting.needs)))


def harms(conf: Mapping[str, str]) -> list[Finding]:
    """A finding for each setting of the session that harms agents, with its key and value; for equal keys one."""
    findings: dict[str, Finding] = {}
    for setting in HARMFUL:
        key = next((key for key in setting.keys if key in conf), None)
        timeout = next((name for name in setting.needs if name in conf), None)
        if key is None or not is_on(conf[key]) or (setting.needs and (timeout is None or not is_on(conf[timeout]))):
            continue
        if setting.below_s is not None and timeout is not None and _seconds(conf[timeout], timeout) >= setting.below_s:
            continue
        limit = "" if timeout in (None, key) else f" with {timeout}={conf[timeout]}"
        finding = Finding(setting.check, setting.level, f"{key}={conf[key]}{limit}: {setting.effect}", setting.fix)
        findings.setdefault(key, finding)
    return list(findings.values())


def amount(conf: Mapping[str, str], key: str, default: str) -> Decimal:
    """The number at `key`, or `default` where it is not set. Raises SessionError for what is no number."""
    text = conf.get(key, default)
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite():
        raise SessionError(f"{key} ({text}) must be a number: set it when you create the session")
    return value


def whole(conf: Mapping[str, str], key: str, default: str) -> int:
    """The whole number at `key`, or `default` where it is not set. Raises SessionError for any other."""
    value = amount(conf, key, default)
    if value != int(value):
        raise SessionError(f"{key} ({conf[key]}) must be a whole number: set it when you create the session")
    return int(value)


def is_on(value: str) -> bool:
    """Whether a setting has an effect: neither false nor empty, 0 or below."""
    return value.strip().lower() not in ("", "false") and value.strip()[:1] not in ("0", "-")


def _seconds(value: str, key: str) -> float:
    match = _TIME.fullmatch(value.strip())
    bare = "s" if key in _IN_SECONDS else "ms"
    return float(match[1]) * _SECONDS_OF[match[2].lower() or bare] if match is not None else 0.0
