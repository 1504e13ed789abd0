"""The process that submits an application for a client, which may be gone meanwhile.

Secrets are in two files of a folder that only this user can read, and that goes with this process: Spark's
configuration, and the packet, which Spark uploads into the application's staging folder as it does a keytab.
"""

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from sparktrain.base import process_tree
from sparktrain.base.decoding import from_msgpack
from sparktrain.driver.clustered.application_packet import PACKET, ApplicationRequest
from sparktrain.driver.clustered.application_settings import properties_text
from sparktrain.driver.submitted_jobs.command import ClusterPlacement, Job, Mode, line_of
from sparktrain.driver.submitted_jobs.follow import SUBMIT_TIMEOUT_S
from sparktrain.driver.submitted_jobs.verdict import CALL_IS_WRONG, refusal_of
from sparktrain.errors import InfraError, SpecError
from sparktrain.rundir.coordinator_folder import CallEnd, CoordinatorFolder
from sparktrain.rundir.layout import RunLayout
from sparktrain.store.held_folders import held
from sparktrain.store.url import open_store

_SECRET_MODE = 0o600


def main() -> None:
    """Submit the application that the standard input asks for."""
    process_tree.name_process("sparktrain-subm")
    submit(from_msgpack(sys.stdin.buffer.read(), ApplicationRequest))


def submit(request: ApplicationRequest) -> None:
    """Run `spark-submit` until YARN has the application, or store why it never will. Blocks; raises OSError."""
    try:
        problem = _problem(request)
    except Exception as error:
        problem = CallEnd(InfraError.__name__, f"no application was submitted: {type(error).__name__}: {error}")
    if problem is not None:
        packet = request.packet
        layout = RunLayout(packet.run)
        CoordinatorFolder(open_store(packet.store), layout.coordinator(packet.call)).finish(problem)


def _problem(request: ApplicationRequest) -> CallEnd | None:
    with held("submit") as folder:
        properties = _written(folder / "spark.conf", properties_text(request.settings).encode())
        packet = _written(folder / PACKET, msgspec.msgpack.encode(request.packet))
        job = Job(
            program=str(Path(__file__).with_name("application_main.py")),
            words=(PACKET,),
            place=ClusterPlacement(mode=Mode.CLUSTER),
            properties_file=str(properties),
            properties=request.settings,
            files=(str(packet),),
            tag=request.tag,
        )
        try:
            completed = subprocess.run(
                line_of(job, request.spark_submit),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=SUBMIT_TIMEOUT_S,
                cwd=folder,
            )
        except subprocess.TimeoutExpired:
            message = f"spark-submit has brought no application to YARN within {SUBMIT_TIMEOUT_S:g} s"
            return CallEnd(InfraError.__name__, f"{message}: check the network and what it uploads, and submit again")
    refusal = refusal_of(completed.stdout.decode(errors="replace")) if completed.returncode != 0 else None
    if refusal is None:
        return None  # YARN has it, and reports its end
    kind = SpecError if refusal.code == CALL_IS_WRONG else InfraError
    return CallEnd(kind.__name__, refusal.message)


def _written(path: Path, content: bytes) -> Path:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _SECRET_MODE), "wb") as file:
        file.write(content)
    return path
