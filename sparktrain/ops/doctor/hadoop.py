"""What Hadoop's configuration, its NameNode and the Kerberos ticket mean for a run, decided from these alone."""

import re
from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from sparktrain.base import formatting
from sparktrain.cluster import yarn_capacity
from sparktrain.cluster.check_finding import Finding, Level, failed, of_message, passed, warned
from sparktrain.store.hadoop.hadoop_errors import KERBEROS_STEP

SOON_S = 3600.0
"""A ticket that expires sooner may expire during a run."""
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
"""The format of times in MIT's `klist`, in the C locale."""


class KlistTicket(Struct, frozen=True):
    """A ticket-granting ticket, as `klist` prints it."""

    principal: str
    ends: float | None
    """Seconds since 1970; None where the time cannot be read."""
    ends_text: str
    """The time as `klist` prints it."""
    renewable_text: str = ""


def ticket_of(output: str) -> KlistTicket | None:
    """The ticket in the output of `klist`; None when it has none."""
    principal = _PRINCIPAL.search(output)
    ticket = _TICKET.search(output)
    if principal is None or ticket is None:
        return None
    renewable = _RENEWABLE.search(output, ticket.end())
    return KlistTicket(principal[1], _time(ticket[2]), ticket[2], renewable[1] if renewable else "")


def kerberos_finding(valid: bool, ticket: KlistTicket | None, now: float, tokens: bool) -> Finding:
    """Whether this process has a valid ticket for a cluster with Kerberos, and when that expires, where it can be read.

    `tokens` means that this process has delegation tokens of YARN.
    """
    if not valid and tokens:
        return passed("kerberos", "no ticket here, and none is needed: this driver has the tokens of its job")
    if not valid:
        ended = "there is no Kerberos ticket" if ticket is None else f"the ticket of {ticket.principal} has expired"
        return failed("kerberos", ended, KERBEROS_STEP)
    if ticket is None:
        return passed("kerberos", "there is a valid ticket; its end is unknown, for this klist prints another format")
    renewable = f", renewable until {ticket.renewable_text}" if ticket.renewable_text else ""
    if ticket.ends is None:
        return passed("kerberos", f"the ticket of {ticket.principal} ends at {ticket.ends_text}{renewable}")
    remaining = formatting.duration(ticket.ends - now)
    ticket_ends = f"the ticket of {ticket.principal} ends in {remaining}, at {ticket.ends_text}{renewable}"
    if ticket.ends - now < SOON_S:
        return warned(
            "kerberos",
            f"{ticket_ends}: a run that lasts longer fails",
            "run kinit; for long runs submit with --principal and --keytab",
        )
    return passed("kerberos", ticket_ends)


def namenode_findings(settings: Mapping[str, str], where: str) -> list[Finding]:
    """Settings of the NameNode at `where` that cost time."""
    findings = []
    # Without it the close of a file fails until a DataNode has reported its last block, and clients try again after
    # 0.4 s or 0.5 s: measured in 6 % to 17 % of small files, and in none with it.
    if not _number(settings.get(COMMITTED_KEY, "0")):
        findings.append(
            warned(
                "namenode",
                f"{COMMITTED_KEY} is 0 on {where}: one small file in ten takes half a second longer",
                f"have {COMMITTED_KEY}=1 set on the NameNode",
            )
        )
    # A DataNode is stale after 30 s without a heartbeat, and dead after 10.5 minutes.
    if settings.get(STALE_KEY) != "true":
        findings.append(
            warned(
                "namenode",
                f"{STALE_KEY} is false on {where}: HDFS sends writers to a dead DataNode for up to 10 minutes",
                f"have {STALE_KEY}=true set on the NameNode",
            )
        )
    return [*findings, *_wire(settings)] or [passed("namenode", f"no setting of {where} is known to cost time")]


def _wire(settings: Mapping[str, str]) -> list[Finding]:
    secret = settings.get(ENCRYPT_KEY) == "true" or "privacy" in settings.get(PROTECTION_KEY, "")
    if not secret or settings.get(CIPHER_KEY):
        return []
    return [
        warned(
            "namenode",
            f"HDFS encrypts data in transit without {CIPHER_KEY}: about 12 times slower than with AES",
            f"have {CIPHER_KEY}=AES/CTR/NoPadding set for NameNode, DataNodes and clients",
        )
    ]


def yarn_findings(
    status: yarn_capacity.YarnStatus | None, where: str, demand: yarn_capacity.Demand | None, executors: int
) -> list[Finding]:
    """Whether the ResourceManager at `where` has room for this many executors of a session, if there is one."""
    if status is None:
        return [
            warned(
                "yarn",
                f"the ResourceManager at {where} does not answer this process: sparktrain cannot explain why "
                "executors do not start",
                "check yarn-site.xml, and whether HTTP clients need a Kerberos ticket",
            )
        ]
    if demand is None:
        return [passed("yarn", f"ResourceManager at {where}: {yarn_capacity.summary(status)}")]
    if refused := yarn_capacity.refusal(demand, status):
        return [of_message("yarn", Level.FAIL, refused)]
    if missing := yarn_capacity.outlook(demand, executors, status):
        return [warned("yarn", missing, "wait until the other applications end, or request fewer executors")]
    return [passed("yarn", f"room for {formatting.count(executors, 'executor')}; {yarn_capacity.summary(status)}")]


def security_findings(hadoop: Mapping[str, str], hdfs: bool) -> list[Finding]:
    """The security gaps in Hadoop's configuration; `hdfs`: the run directory is in HDFS."""
    findings = []
    if hdfs and hadoop.get(AUTHENTICATION_KEY, "simple") == "simple":
        findings.append(
            warned(
                "security",
                "HDFS trusts the user name that a client sends: every client that reaches it can read and delete runs",
                f"ask the administrators for Kerberos ({AUTHENTICATION_KEY}=kerberos)",
            )
        )
    if any(name.startswith("yarn.") for name in hadoop) and "Linux" not in hadoop.get(EXECUTOR_KEY, ""):
        findings.append(
            warned(
                "security",
                "containers of YARN run as one user of their host, by its configuration on this machine: "
                "jobs of other users can read and end yours",
                f"have {EXECUTOR_KEY} set to the LinuxContainerExecutor",
            )
        )
    return findings


def _number(text: str) -> int:
    return int(text) if text.strip().isdecimal() else 0


def _time(text: str) -> float | None:
    try:
        return datetime.strptime(text, _TIME).timestamp()
    except ValueError:
        return None
