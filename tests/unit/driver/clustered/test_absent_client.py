"""What a run reports of its end on a Connect server, once its client is gone."""

from sparktrain.config.connect_server import ConnectLimits, ConnectServer
from sparktrain.driver.clustered.absent_client import lifetime_line, reached_server, unkept
from sparktrain.protocol.scouting import ScoutReport

SERVER = ConnectServer(targets=("localhost:15002", "10.1.2.3:15002"), headers=(("authorization", "Bearer t0ken"),))


def test_a_server_that_executors_reach_has_their_address_alone() -> None:
    report = ScoutReport("host-1", server="10.1.2.3:15002")
    reached = reached_server(SERVER, report)
    assert reached is not None
    assert (reached.targets, reached.headers) == (("10.1.2.3:15002",), SERVER.headers)
    assert lifetime_line(SERVER, report).endswith("stays attached to the Connect server at 10.1.2.3:15002")
    assert reached_server(None, report) is None
    assert "t0ken" not in repr(SERVER)


def test_a_server_that_executors_do_not_reach_ends_the_run_by_settings_that_are_named() -> None:
    report = ScoutReport("host-1", server_problem="localhost:15002: UNAVAILABLE: refused")
    assert reached_server(SERVER, report) is None
    line = lifetime_line(SERVER, report)
    assert line.startswith(
        "the Connect server ends the run 7 min after this process has left, by "
        "spark.connect.execute.reattachable.senderMaxStreamDuration=2m and "
        "spark.connect.execute.manager.detachedTimeout=5m; only the server's own configuration can change that"
    )
    assert "executors such as host-1 do not reach the server (localhost:15002: UNAVAILABLE: refused)" in line


def test_the_shorter_limit_is_named() -> None:
    hour = unkept(ConnectLimits(detached_s=86400.0))
    assert "ends the run 60 min after" in hour
    assert "by spark.connect.session.manager.defaultSessionTimeout=1h;" in hour
    assert "detachedTimeout" not in hour
    never = unkept(ConnectLimits(detached_s=30 * 86400.0, session_s=-1.0))
    assert "ends the run 720 h after" in never
    assert "detachedTimeout=30d;" in never
    assert "ends the run 100 s after" in unkept(ConnectLimits(detached_s=15.0, stream_s=85.0))
