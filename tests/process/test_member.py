"""A member from its assignment to its exit."""

import math
import os
import signal
import sys
from pathlib import Path

import pytest

from sparktrain.executor.exit_causes import classify
from sparktrain.executor.zygote_process import ZygoteProcess
from sparktrain.protocol import pipe_messages as m
from sparktrain.state.agent_messages import Advise
from sparktrain.state.outcome import FailureKind
from tests.process.harness import MEMBER, Bench, alive, eventually, see_out


async def test_a_member_returns_its_metrics(bench: Bench) -> None:
    trial = await bench.run(lambda x, y: {"sum": x + y}, params={"x": 1, "y": 2.5}, metric="sum")

    assert trial.entered
    assert trial.metrics == {"sum": 3.5}
    assert trial.exited is not None
    assert trial.exited.status == 0
    assert trial.exited.orphans == 0
    assert trial.exited.peak_rss_bytes > 2**20


async def test_a_function_with_a_ctx_parameter_gets_the_context(bench: Bench) -> None:
    def train(lr, ctx):
        ctx.report(0, loss=1.5)
        ctx.report(step=4, loss=float("nan"))
        seen = [ctx.params["lr"], ctx.trial, ctx.seed, ctx.rank, ctx.size, ctx.generation]
        with open(f"{ctx.log_dir}/seen", "w") as file:
            file.write(repr(seen))
        return lr

    trial = await bench.run(train, params={"lr": 0.1}, metric="loss")

    assert trial.metrics == {"loss": 0.1}
    assert (trial.reports[0].step, trial.reports[0].metrics) == (0, {"loss": 1.5})
    assert (trial.reports[1].step, math.isnan(trial.reports[1].metrics["loss"])) == (4, True)
    assert all(report.time > 1e9 for report in trial.reports)
    assert (trial.home / "files" / "seen").read_text() == "[0.1, 3, 11, 0, 1, 1]"


async def test_a_member_is_asked_to_stop(bench: Bench) -> None:
    def train(ctx):
        assert not ctx.should_stop()
        ctx.report(0)
        while not ctx.should_stop():
            os.sched_yield()
        return 1

    child, trial = await bench.start(train)
    assert isinstance(await child.receive(), m.Entered)
    assert isinstance(await child.receive(), m.Reported)
    child.send(Advise(MEMBER))

    assert (await see_out(child, trial)).metrics == {"result": 1.0}


async def test_output_of_all_kinds_is_in_one_log(bench: Bench) -> None:
    def train():
        import ctypes
        import subprocess

        print("from print \udcff", end=" ")
        ctypes.CDLL(None).printf(b"from native code\n")
        os.write(2, b"from stderr \xff\n")
        subprocess.run(["echo", "from a subprocess"], check=True)
        sys.stdout.write("without an end of line")

    trial = await bench.run(train)

    assert trial.metrics == {}
    wanted = ("from print \\udcff", "native code\n", "stderr \\xff\n", "from a subprocess\n", "without an end of line")
    assert all(part in trial.log for part in wanted)


async def test_a_member_has_its_own_directory_path_and_devices(bench: Bench, tmp_path: Path) -> None:
    package = tmp_path / "modules" / "lib"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "train.py").write_text(
        "import os, sys\n"
        "class Trainer:\n"
        "    @staticmethod\n"
        "    def train(x):\n"
        "        print(os.getcwd(), os.environ['CUDA_VISIBLE_DEVICES'], sys.stdin.read() == '')\n"
        "        return x\n"
    )

    trial = await bench.run(
        "lib.train:Trainer.train", params={"x": 1}, sys_path=(str(package.parent),), gpus=("2", "GPU-7")
    )

    assert trial.metrics == {"result": 1.0}
    assert trial.log == f"{trial.home / 'work'} 2,GPU-7 True\n"


async def test_a_member_is_seeded_by_its_assignment(bench: Bench) -> None:
    def train():
        import random

        return random.random()

    drawn = [(await bench.run(train, seed=seed)).metrics["result"] for seed in (1, 2, 1, 2**63)]

    assert drawn[0] == drawn[2]
    assert len(set(drawn)) == 3


async def test_a_member_leaves_no_state_to_the_next(bench: Bench) -> None:
    def spoil():
        import builtins
        import random
        import signal

        os.environ["LEAK"] = "1"
        os.chdir("/")
        sys.path.append("/leak")
        sys.modules["leak"] = sys
        builtins.leak = 1
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.umask(0)
        random.seed(5)

    def look():
        import builtins
        import signal

        leaks = ["LEAK" in os.environ, os.getcwd() == "/", "/leak" in sys.path, "leak" in sys.modules]
        leaks += [hasattr(builtins, "leak"), signal.getsignal(signal.SIGTERM) is signal.SIG_IGN, os.umask(0) == 0]
        return sum(leaks)

    await bench.run(spoil)

    assert (await bench.run(look)).metrics == {"result": 0.0}


async def test_a_spare_is_forked_while_a_member_runs(bench: Bench) -> None:
    def first(ctx):
        while not ctx.should_stop():
            os.sched_yield()
        return 1

    child, trial = await bench.start(first)
    second = await bench.run(lambda: len(os.listdir("/proc/self/fd")))
    child.send(Advise(MEMBER))

    assert (await see_out(child, trial)).metrics == {"result": 1.0}
    used = "stdio, its pipe to the agent, the mapped file of its newest step, and the directory that is listed"
    assert second.metrics["result"] <= 6, used


async def test_a_member_imports_no_module_that_cannot_be_forked(bench: Bench) -> None:
    unsafe = ("grpc", "pyspark", "tensorflow", "pyarrow", "hdfs_native", "psutil")

    trial = await bench.run(lambda: sum(name in sys.modules for name in unsafe))

    assert trial.metrics == {"result": 0.0}


async def test_a_member_sees_no_secrets_of_spark_and_no_tokens(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_spark = ("PYTHON_WORKER_FACTORY_SECRET", "PYSPARK_GATEWAY_SECRET", "PYSPARK_GATEWAY_PORT", "_SPARK_AUTH_SECRET")
    secrets = (*of_spark, "_SPARK_SSL_RPC_KEY_STORE_PASSWORD", "HADOOP_TOKEN_FILE_LOCATION")
    for name in (*secrets, "KEPT"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PYTHONPATH", "/kept")
    zygote = ZygoteProcess(tmp_path, env={"ADDED": "1"})
    zygote.start()

    def train():
        kept = os.environ.get("KEPT") and os.environ.get("ADDED") and os.environ.get("PYTHONPATH") == "/kept"
        return {"secrets": sum(name in os.environ for name in secrets), "kept": int(bool(kept))}

    trial = await Bench(zygote, tmp_path).run(train)
    await zygote.close()

    assert trial.metrics == {"secrets": 0.0, "kept": 1.0}


async def test_running_threads_do_not_delay_the_exit_and_exit_handlers_run(bench: Bench) -> None:
    def train():
        import atexit
        import threading

        from sparktrain.training import process_setup

        process_setup.THREADS_TIMEOUT_S = 0.1
        threading.Thread(target=threading.Event().wait, name="left over").start()
        atexit.register(print, "handler ran")
        return 1

    trial = await bench.run(train)

    assert trial.metrics == {"result": 1.0}
    assert "left running: left over" in trial.log
    assert "handler ran" in trial.log
    assert trial.exited is not None
    assert trial.exited.status == 0


async def test_an_exit_handler_that_hangs_is_shown_and_ended(bench: Bench) -> None:
    def train():
        import atexit
        import threading

        from sparktrain.training import process_setup

        process_setup.EXIT_TIMEOUT_S = 0.2
        atexit.register(threading.Event().wait)
        return 1

    trial = await bench.run(train)

    assert trial.metrics == {"result": 1.0}
    assert "in wait" in trial.log


async def test_a_process_that_the_function_forks_has_no_outcome(bench: Bench) -> None:
    def train(ctx):
        if (pid := os.fork()) == 0:
            ctx.report(1)  # raises: the report of a process that is not the member
        os.waitpid(pid, 0)
        return pid

    trial = await bench.run(train)

    assert trial.reports == []
    assert trial.metrics["result"] > 0


async def test_a_function_that_closes_every_descriptor_fails_with_that_cause(bench: Bench) -> None:
    child, trial = await bench.start(lambda: os.closerange(0, 1000))
    await see_out(child, trial)

    assert trial.outcome is None
    assert trial.exited is not None
    assert "closes file descriptors" in classify(trial.exited).summary


async def test_a_function_that_closes_its_pipe_and_continues_is_killed(bench: Bench) -> None:
    def train():
        os.closerange(3, 1000)
        signal.pause()

    child, _ = await bench.start(train)
    while await child.receive() is not None:
        pass
    child.kill(0.0)
    exited = await child.wait()

    assert child.disconnected
    assert "cut the process off" in classify(exited, disconnected=child.disconnected).summary


async def test_a_function_that_writes_into_its_pipe_is_killed(bench: Bench) -> None:
    def train(ctx):
        for fd in map(int, os.listdir("/proc/self/fd")):
            if fd > 2 and os.path.exists(f"/proc/self/fd/{fd}") and "socket" in os.readlink(f"/proc/self/fd/{fd}"):
                os.write(fd, b"\xff" * 8)
        signal.pause()

    child, trial = await bench.start(train)
    await see_out(child, trial)

    assert trial.outcome is None
    assert child.disconnected


async def test_a_member_that_ignores_sigterm_is_killed(bench: Bench) -> None:
    def train(ctx):
        signal.signal(signal.SIGTERM, lambda *_: print("not yet"))
        ctx.report(0)
        while True:
            signal.pause()

    child, trial = await bench.start(train)
    await child.receive()
    await child.receive()
    child.kill(0.1)
    await see_out(child, trial)

    assert trial.exited is not None
    assert trial.exited.status == -signal.SIGKILL
    assert "not yet" in trial.log
    assert classify(trial.exited, stopped=True).kind is FailureKind.STOPPED


async def test_the_log_of_a_stopped_member_shows_its_stack(bench: Bench) -> None:
    def wait_for_ever(ctx):
        ctx.report(0)
        signal.pause()

    child, trial = await bench.start(wait_for_ever)
    await child.receive()
    await child.receive()
    child.kill(5.0)
    await see_out(child, trial)

    assert trial.exited is not None
    assert trial.exited.status == -signal.SIGTERM
    assert "in wait_for_ever" in trial.log


async def test_a_member_that_cannot_be_set_up_fails(bench: Bench) -> None:
    trial = await bench.run(lambda: 1, work_dir="/nowhere")

    assert trial.failure.kind is FailureKind.LOST
    assert "/nowhere" in trial.failure.summary
    assert not trial.entered


async def test_an_unused_spare_is_ended(zygote: ZygoteProcess) -> None:
    killed, dropped = await zygote.fork(), await zygote.fork()

    killed.kill(0.0)
    assert (await killed.wait()).status == -signal.SIGKILL
    killed.kill(0.0)
    dropped.kill(1.0)
    assert (await dropped.wait()).status == -signal.SIGTERM
    assert await dropped.receive() is None
    await eventually(lambda: not alive(killed.pid) and not alive(dropped.pid), 0.5)


async def test_a_member_has_the_variables_of_the_user_and_the_next_one_does_not(bench: Bench) -> None:
    def train() -> dict[str, float]:
        import subprocess

        print(os.environ.get("TOKEN"), subprocess.check_output(["sh", "-c", "echo $TOKEN"], text=True).strip())
        return {"y": 1.0}

    wanted = await bench.run(train, env={"TOKEN": "of the first"})
    after = await bench.run(train)
    assert wanted.log.splitlines() == ["of the first of the first"]
    assert after.log.split() == ["None"]
