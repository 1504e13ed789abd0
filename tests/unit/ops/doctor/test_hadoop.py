"""The findings from Hadoop's answers, at every level; YARN's answers are recorded ones."""

import json
from datetime import datetime
from pathlib import Path

import pytest

from sparktrain.cluster import yarn_capacity
from sparktrain.cluster.check_finding import Level
from sparktrain.ops.doctor.hadoop import (
    AUTHENTICATION_KEY,
    CIPHER_KEY,
    COMMITTED_KEY,
    ENCRYPT_KEY,
    EXECUTOR_KEY,
    PROTECTION_KEY,
    STALE_KEY,
    KlistTicket,
    kerberos_finding,
    namenode_findings,
    security_findings,
    ticket_of,
    yarn_findings,
)
from tests.unit.ops.doctor.seen import reads

KLIST = """\
Ticket cache: FILE:/tmp/krb5cc_1000
Default principal: alice@LAB.TEST

Valid starting     Expires            Service principal
{starts}  {ends}  krbtgt/LAB.TEST@LAB.TEST
\trenew until {renewed}
{starts}  {ends}  nn/localhost@LAB.TEST
"""
NOON = datetime(2026, 11, 21, 12).timestamp()
NO_TICKET = "klist: No credentials cache found (filename: /tmp/krb5cc_1000)\n"
WELL = {COMMITTED_KEY: "1", STALE_KEY: "true"}
IDLE = json.loads((Path(__file__).parents[2] / "cluster" / "yarn" / "idle.json").read_text())
RM = "http://rm:8088"


def test_klist_is_read_as_it_writes_times() -> None:
    starts, ends = "11/21/26 08:00:05", "11/21/26 18:00:05"
    ticket = ticket_of(KLIST.format(starts=starts, ends=ends, renewed=ends))
    assert ticket == KlistTicket("alice@LAB.TEST", NOON + 6 * 3600 + 5, ends, ends)


def test_klist_without_a_ticket_that_grants_others_has_none() -> None:
    assert ticket_of(NO_TICKET) is None
    assert ticket_of(KLIST.replace("krbtgt/", "host/").format(starts="a b", ends="a b", renewed="a b")) is None
    unread = ticket_of(KLIST.format(starts="21. 8:00", ends="21. 18:00", renewed="28. 18:00"))
    assert unread == KlistTicket("alice@LAB.TEST", None, "21. 18:00", "28. 18:00")


def test_a_ticket_is_reported_with_its_end() -> None:
    def at(seconds: float | None, renewable: str = "") -> KlistTicket:
        return KlistTicket("alice@LAB.TEST", None if seconds is None else NOON + seconds, "18:00", renewable)

    expected = "the ticket of alice@LAB.TEST ends in 10:00:00, at 18:00, renewable until tomorrow"
    assert reads(kerberos_finding(True, at(36000, "tomorrow"), NOON, False), Level.PASS, expected)
    assert reads(kerberos_finding(True, at(None), NOON, False), Level.PASS, "ends at 18:00")
    assert reads(kerberos_finding(True, None, NOON, False), Level.PASS, "there is a valid ticket")
    assert reads(kerberos_finding(True, at(1800), NOON, False), Level.WARN, "ends in 30:00", "--keytab")
    assert reads(kerberos_finding(False, at(-1), NOON, False), Level.FAIL, "alice@LAB.TEST has expired", "kinit")
    assert reads(kerberos_finding(False, None, NOON, False), Level.FAIL, "there is no Kerberos ticket", "kinit")
    assert reads(kerberos_finding(False, None, NOON, True), Level.PASS, "has the tokens of its job")


def test_settings_of_the_namenode_that_cost() -> None:
    [well] = namenode_findings(WELL, "http://nn:9870")
    assert reads(well, Level.PASS, "no setting of http://nn:9870")
    one, two = namenode_findings({}, "http://nn:9870")
    assert reads(one, Level.WARN, f"{COMMITTED_KEY} is 0 on http://nn:9870", f"{COMMITTED_KEY}=1")
    assert reads(two, Level.WARN, f"{STALE_KEY} is false", f"{STALE_KEY}=true")


@pytest.mark.parametrize("secret", [{ENCRYPT_KEY: "true"}, {PROTECTION_KEY: "authentication,privacy"}])
def test_encryption_without_aes_is_slow(secret: dict[str, str]) -> None:
    [slow] = namenode_findings({**WELL, **secret}, "nn")
    assert reads(slow, Level.WARN, "12 times slower", f"{CIPHER_KEY}=AES/CTR/NoPadding")
    [well] = namenode_findings({**WELL, **secret, CIPHER_KEY: "AES/CTR/NoPadding"}, "nn")
    assert well.level is Level.PASS


def test_yarn_without_a_session() -> None:
    [silent] = yarn_findings(None, RM, None, 0)
    assert reads(silent, Level.WARN, f"the ResourceManager at {RM} does not answer", "Kerberos ticket")
    [well] = yarn_findings(yarn_capacity.YarnStatus(**IDLE), RM, None, 0)
    assert reads(well, Level.PASS, f"ResourceManager at {RM}: ", "running node", "queues: ")


def test_yarn_refuses_or_has_room() -> None:
    idle = yarn_capacity.YarnStatus(**IDLE)
    [refused] = yarn_findings(idle, RM, yarn_capacity.demand_of({yarn_capacity.QUEUE_KEY: "none"}), 1)
    assert reads(refused, Level.FAIL, "YARN has no queue none", "set it to one of")
    demand = yarn_capacity.demand_of({"spark.executor.memory": "512m"})
    [well] = yarn_findings(idle, RM, demand, 1)
    assert reads(well, Level.PASS, "room for 1 executor")
    [full] = yarn_findings(idle, RM, demand, 1000)
    assert reads(full, Level.WARN, "of 1000 executors fit nodes", "request fewer executors")


def test_security_gaps_of_hadoop() -> None:
    assert security_findings({}, False) == []
    [hdfs] = security_findings({}, True)
    assert reads(hdfs, Level.WARN, "HDFS trusts the user name", f"{AUTHENTICATION_KEY}=kerberos")
    kerberos = {AUTHENTICATION_KEY: "kerberos", "yarn.resourcemanager.hostname": "rm"}
    [containers] = security_findings(kerberos, True)
    assert reads(containers, Level.WARN, "run as one user of their host", EXECUTOR_KEY)
    linux = "org.apache.hadoop.yarn.server.nodemanager.LinuxContainerExecutor"
    assert security_findings({**kerberos, EXECUTOR_KEY: linux}, True) == []
