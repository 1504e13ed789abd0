"""The command that checks whether a cluster can do what runs need: `sparktrain doctor`. Wiring alone."""

from typing import Annotated

from sparktrain.base.optional_packages import is_submitted
from sparktrain.cli import common
from sparktrain.cli.common import EXIT_CODES, CommandRequest, Output
from sparktrain.cli.flags import Debug, option, with_help
from sparktrain.cli.inspect_commands import AsJson
from sparktrain.cli.training_flags import Conf
from sparktrain.config.panels import SIZE, WHERE

EXAMPLES = """\
This machine, its Hadoop, and a place for runs, without Spark:
  sparktrain doctor --dir hdfs:///runs
Executors on this machine, too:
  sparktrain doctor --master 'local-cluster[2,1,1024]' --dir /shared/runs --json
A cluster as a job sees it:
  spark-submit --master yarn --conf spark.executor.instances=4 \\
      jobs/doctor.py --dir hdfs:///runs
"""


@with_help(
    EXAMPLES,
    {
        0: "nothing fails; there may be warnings",
        1: "at least one check fails; or an unexpected error",
        2: "the call is wrong: an option, or the directory",
        130: EXIT_CODES[130],
    },
)
def doctor(
    dir: Annotated[str | None, option(WHERE, "PATH", "The directory for runs, tested with small files.")] = None,
    master: Annotated[
        str | None, option(WHERE, "URL", "Spark's master (default: no session, unless spark-submit brings one).")
    ] = None,
    agents: Annotated[int | None, option(SIZE, "N", "Slots to check (default: all slots of the session).")] = None,
    gpus: Annotated[int | None, option(SIZE, "N", "GPUs for each process that trains (default: 0).")] = None,
    conf: Conf = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Check whether a session, its executors and a store can do what runs need, and show what to do where they cannot.

    Takes a minute at most, plus the start of the session. Writes small files to the store, and deletes them.
    """
    request = CommandRequest(
        target="",
        settings={"agents": agents, "gpus": gpus or 0, "dir": dir},
        master=master,
        conf=tuple(conf or ()),
        as_json=as_json,
    )
    return common.look(lambda out: look_at(out, request), as_json=as_json, debug=debug)


def look_at(out: Output, request: CommandRequest) -> int:
    """Examine the cluster and show the report. Blocks on the session, the store and Hadoop's daemons."""
    import os

    from sparktrain.cluster.check_finding import Level
    from sparktrain.ops.doctor.doctor_report import DoctorReport, document
    from sparktrain.ops.doctor.examine import ClusterExaminer, ExaminationRequest

    with_spark = request.master is not None or is_submitted()
    session = common.prepare(request, "sparktrain doctor").session if with_spark else None
    scope = ExaminationRequest(
        request.settings["dir"],
        session,
        request.settings["agents"],
        request.settings["gpus"],
        master=request.master or "",
    )
    examination = ClusterExaminer(scope, os.cpu_count() or 1).examine()
    if out.as_json:
        out.document(document(examination))
    else:
        out.show(DoctorReport(examination))
    return 1 if examination.level is Level.FAIL else 0
