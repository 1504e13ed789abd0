"""What the doctor reports of runs that their client has left."""

from sparktrain.cluster.check_finding import Level
from sparktrain.config.connect_server import ConnectLimits, ConnectServer
from sparktrain.ops.doctor.examine import absence_finding
from sparktrain.protocol.scouting import ScoutReport

SERVER = ConnectServer(targets=("10.1.2.3:15002",), limits=ConnectLimits(session_s=60.0))


def test_a_coordinator_that_reaches_the_server_keeps_runs() -> None:
    finding = absence_finding(SERVER, ScoutReport("host-1", server="10.1.2.3:15002"))
    assert finding.level is Level.PASS
    assert "a submitted run continues without its client: executors such as host-1 reach" in finding.message


def test_the_limit_of_the_server_is_named_where_no_executor_reaches_it() -> None:
    finding = absence_finding(SERVER, ScoutReport("host-1", server_problem="10.1.2.3:15002: UNAVAILABLE: refused"))
    assert finding.level is Level.WARN
    assert finding.message.startswith(
        "the Connect server ends a submitted run 60 s after its client has left, by "
        "spark.connect.session.manager.defaultSessionTimeout=1m;"
    )
    assert "host-1 do not reach the server (10.1.2.3:15002: UNAVAILABLE: refused)" in finding.message
    assert "such as to 30d" in finding.fix
