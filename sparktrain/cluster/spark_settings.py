"""Settings of Spark that harm agents, which are Python workers that send no rows before their end. Pure."""

from collections.abc import Mapping

from msgspec import Struct

from sparktrain.cluster.check_finding import Finding, Level

PYTHON_MEMORY_KEY = "spark.executor.pyspark.memory"
_OF_SQL = "spark.sql.execution.pyspark.udf."
_OF_WORKERS = "spark.python.worker."
_KILL = "killOnIdleTimeout"
_TIMEOUT = "idleTimeoutSeconds"
_NO_EXCLUSION = "set it to false: sparktrain leaves out agents and hosts that fail"


class HarmfulSetting(Struct, frozen=True, kw_only=True):
    """A setting, what it does to agents, and what to do about it."""

    check: str
    level: Level
    keys: tuple[str, ...]
    """The first one that is set decides."""
    needs: tuple[str, ...] = ()
    """It harms only where the first one of these that is set is not 0."""
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
        keys=("spark.excludeOnFailure.application.enabled", "spark.excludeOnFailure.enabled"),
        effect="after a loss Spark may start no agent on that executor or host, and a gang then waits for one in vain",
        fix=_NO_EXCLUSION,
    ),
    HarmfulSetting(
        check="exclusion",
        level=Level.WARN,
        keys=("spark.excludeOnFailure.taskAndStage.enabled", "spark.excludeOnFailure.enabled"),
        effect="after a loss Spark may not start that agent again on its executor or host, and a gang waits for it in "
        "vain",
        fix=_NO_EXCLUSION,
    ),
)
KEYS = tuple(dict.fromkeys(key for setting in HARMFUL for key in (*setting.keys, *setting.needs)))


def harms(conf: Mapping[str, str]) -> list[Finding]:
    """A finding for each setting of the session that harms agents, with its key and value; for equal keys one."""
    findings: dict[str, Finding] = {}
    for setting in HARMFUL:
        key = next((key for key in setting.keys if key in conf), None)
        timeout = next((name for name in setting.needs if name in conf), None)
        if key is None or not _is_on(conf[key]) or (setting.needs and (timeout is None or not _is_on(conf[timeout]))):
            continue
        limit = "" if timeout is None else f" with {timeout}={conf[timeout]}"
        finding = Finding(setting.check, setting.level, f"{key}={conf[key]}{limit}: {setting.effect}", setting.fix)
        findings.setdefault(key, finding)
    return list(findings.values())


def _is_on(value: str) -> bool:
    return value.strip().lower() not in ("", "false") and value.strip()[:1] not in ("0", "-")
