"""What Hadoop's configuration, its NameNode and the Kerberos ticket mean for a run: decided from their words alone."""

import re
from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from sparktrain import formatting
from sparktrain.cluster import yarn_capacity
from sparktrain.cluster.check_finding import Finding, Level, failed, of_message, passed, warned
from sparktrain.store.hadoop.hadoop_errors import KERBEROS_STEP

SOON_S = 3600.0
"""A ticket that ends sooner may end before a run."""
EXECUTOR_KEY = "yarn.nodemanager.container-executor.class"
AUTHENTICATION_KEY = "hadoop.security.authentication"
COMMITTED_KEY = "dfs.namenode.file.close.num-committed-allowed"
STALE_KEY = "dfs.namenode.avoid.write.stale.datanode"
ENCRYPT_KEY = "dfs.encrypt.data.transfer"
PROTECTION_KEY = "dfs.data.transfer.protection"
CIPHER_KEY = "dfs.encrypt.data.transfer.cipher.suites"

_PRINCIPAL = re.compile(r"^Default principal: (\S+)$", re.MULTILINE)
_TICKET = re.compile(r"^(\S+ \S+) +(\S+ \S+) +krbtgt/\S+$", re.MULTILINE)
_RENEWABLE = re.compile(r"renew until (\S+ \S+)")
_TIME = "%m/%d/%y %H:%M:%S"
"""As `klist` of MIT writes times in the C locale."""


class KlistTicket(Struct, frozen=True):
    """A ticket that grants others, as `klist` tells."""

    principal: str
    ends: float | None
    """Seconds since 1970; None where the time cannot be read."""
    ends_text: str
    """As `klist` writes it."""
    renewable_text: str = ""


def ticket_of(said: str) -> KlistTicket | None:
    """From what `klist` prints; None when it has no such ticket."""
    principal, found = _PRINCIPAL.search(said), _TICKET.search(said)
    if principal is None or found is None:
        return None
    renewable = _RENEWABLE.search(said, found.end())
    return KlistTicket(principal[1], _time(found[2]), found[2], renewable[1] if renewable else "")


def kerberos_finding(valid: bool, ticket: KlistTicket | None, now: float, tokens: bool) -> Finding:
    """Of a cluster that wants tickets: whether one is valid, and which, where that can be read.

    `tokens`: this process has delegation tokens of YARN.
    """
    if not valid and tokens:
        return passed("kerberos", "no ticket here, and none is needed: this driver has the tokens of its job")
    if not valid:
        ended = "there is no Kerberos ticket" if ticket is None else f"the ticket of {ticket.principal} has ended"
        return failed("kerberos", ended, KERBEROS_STEP)
    if ticket is None:
        return passed("kerberos", "there is a valid ticket; klist, which tells its end, is of an unknown kind")
    renewable = f", renewable until {ticket.renewable_text}" if ticket.renewable_text else ""
    if ticket.ends is None:
        return passed("kerberos", f"the ticket of {ticket.principal} ends at {ticket.ends_text}{renewable}")
    left = formatting.duration(ticket.ends - now)
    told = f"the ticket of {ticket.principal} ends in {left}, at {ticket.ends_text}{renewable}"
    if ticket.ends - now < SOON_S:
        return warned(
            "kerberos",
            f"{told}: a run that lasts longer fails",
            "run kinit; for long runs submit with --principal and --keytab",
        )
    return passed("kerberos", told)


def namenode_findings(settings: Mapping[str, str], where: str) -> list[Finding]:
    """Settings of the NameNode at `where` that cost time."""
    found = []
    if not _number(settings.get(COMMITTED_KEY, "0")):
        found.append(
            warned(
                "namenode",
                f"{COMMITTED_KEY} is 0 on {where}: one small file in ten takes half a second longer",
                f"have {COMMITTED_KEY}=1 set on the NameNode",
            )
        )
    if settings.get(STALE_KEY) != "true":
        found.append(
            warned(
                "namenode",
                f"{STALE_KEY} is false on {where}: writers are sent to a dead DataNode for up to 10 minutes",
                f"have {STALE_KEY}=true set on the NameNode",
            )
        )
    return [*found, *_wire(settings)] or [passed("namenode", f"no setting of {where} is known to cost time")]


def _wire(settings: Mapping[str, str]) -> list[Finding]:
    secret = settings.get(ENCRYPT_KEY) == "true" or "privacy" in settings.get(PROTECTION_KEY, "")
    if not secret or settings.get(CIPHER_KEY):
        return []
    return [
        warned(
            "namenode",
            f"data on its way to HDFS is encrypted without {CIPHER_KEY}: about 12 times slower than with AES",
            f"have {CIPHER_KEY}=AES/CTR/NoPadding set for NameNode, DataNodes and clients",
        )
    ]


def yarn_findings(
    told: yarn_capacity.Told | None, where: str, demand: yarn_capacity.Demand | None, executors: int
) -> list[Finding]:
    """What the ResourceManager at `where` has: for so many executors of a session, where there is one."""
    if told is None:
        return [
            warned(
                "yarn",
                f"the ResourceManager at {where} does not answer this process; why executors do not come "
                "will not be told",
                "see yarn-site.xml, and whether it wants a Kerberos ticket of HTTP clients",
            )
        ]
    if demand is None:
        return [passed("yarn", f"ResourceManager at {where}: {yarn_capacity.summary(told)}")]
    if refused := yarn_capacity.refusal(demand, told):
        return [of_message("yarn", Level.FAIL, refused)]
    if missing := yarn_capacity.outlook(demand, executors, told):
        return [warned("yarn", missing, "wait until the others end, or ask for fewer executors")]
    return [passed("yarn", f"room for {formatting.count(executors, 'executor')}; {yarn_capacity.summary(told)}")]


def security_findings(hadoop: Mapping[str, str], hdfs: bool) -> list[Finding]:
    """What Hadoop's configuration leaves open; `hdfs`: runs are kept there. Nothing where there is no YARN either."""
    found = []
    if hdfs and hadoop.get(AUTHENTICATION_KEY, "simple") == "simple":
        found.append(
            warned(
                "security",
                "HDFS believes whatever user name a client gives: anybody who reaches it can read and delete runs",
                f"have Kerberos set up ({AUTHENTICATION_KEY}=kerberos)",
            )
        )
    if any(name.startswith("yarn.") for name in hadoop) and "Linux" not in hadoop.get(EXECUTOR_KEY, ""):
        found.append(
            warned(
                "security",
                "containers of YARN run as one user of their host, as far as its configuration here "
                "tells: jobs of other people can read and end yours",
                f"have {EXECUTOR_KEY} set to the LinuxContainerExecutor",
            )
        )
    return found


def _number(text: str) -> int:
    return int(text) if text.strip().isdecimal() else 0


def _time(told: str) -> float | None:
    try:
        return datetime.strptime(told, _TIME).timestamp()
    except ValueError:
        return None
