"""All members of a gang are on one host, until another host has an agent."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import sparktrain as st
from tests.faults.standalone import standalone
from tests.hosts.learning import fitted
from tests.support.hosts import bridged_hosts
from tests.support.local_spark import spark_session
from tests.support.processes import wait_until

STARTS_S = 60.0
MOVES_S = 60.0

pytestmark = [
    pytest.mark.all(
        case="a member moves off a crowded host",
        covered_by="`unit/state/test_seat_decisions`: crowded; `faults/test_draining`: a member that moves",
    ),
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.getuid() != 0 or shutil.which("ip") is None, reason="hosts need root and the command ip"),
]


def test_a_member_moves_off_a_crowded_host_once_another_host_has_an_agent(tmp_path: Path) -> None:
    def hosts(rank: int) -> set[str]:
        return {path.read_text().split()[0] for path in tmp_path.glob(f"step-{rank}-*")}

    (folder := tmp_path / "cluster").mkdir()
    gang = {"workers": 2, "agents": 3, "spread": True, "backend": "horovod", "preload": ["tensorflow"]}
    with bridged_hosts(2) as network:
        address = {"spark.driver.host": network.address, "spark.driver.bindAddress": network.address}
        conf = address | {"spark.executor.cores": "1", "spark.executor.memory": "512m"}
        enter = [host.enter for host in network.hosts]
        addresses = [host.address for host in network.hosts]
        with (
            standalone(folder, addresses, network.address, enter, cores=2) as workers,
            ThreadPoolExecutor(1) as threads,
        ):
            workers.kill_worker(1)
            with spark_session(workers.url, folder, conf) as session:
                running = threads.submit(
                    st.run, fitted, {"folder": str(tmp_path)}, spark=session, dir=str(tmp_path / "runs"),
                    progress=False, **gang,
                )  # fmt: skip
                try:
                    wait_until(lambda: hosts(0) == hosts(1) == {"host-0"}, STARTS_S, "both train on the first host")
                    workers.start_worker(1)
                    wait_until(lambda: hosts(1) == {"host-0", "host-1"}, MOVES_S, "a member trains on the second host")
                finally:
                    (tmp_path / "go").touch()
                result = running.result(MOVES_S)
    [restart] = result.restarts
    assert (restart.rank, restart.how, restart.steps_lost) == (1, st.RestartHow.MOVED, 0)
    assert restart.cause == "spread: its host had 2 of 2 members"
    assert hosts(0) == {"host-0"}
