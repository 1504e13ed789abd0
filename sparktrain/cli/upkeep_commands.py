"""The commands that verify and repair a run directory, and make room in it. Wiring alone."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from sparktrain.base.ids import TrialId
from sparktrain.cli import common
from sparktrain.cli.common import EXIT_CODES, LOOKING_CODES, Output
from sparktrain.cli.flags import Debug, Directory, Quiet, option, with_help
from sparktrain.cli.inspect_commands import AsJson
from sparktrain.config.panels import DELETED, SHOWN, TRIALS
from sparktrain.errors import SpecError

if TYPE_CHECKING:
    from sparktrain.runs.additions.trial_labels import LabelKind

GC_EXAMPLES = """\
What would be deleted, and its size:
  sparktrain gc hdfs:///runs/mnist --dry-run
Keep only the checkpoints of the best trial:
  sparktrain gc /shared/runs/mnist --checkpoints best
"""
FSCK_EXAMPLES = """\
Verify all that a driver would read, every byte of it:
  sparktrain fsck hdfs:///runs/mnist
The same in a moment, by the sizes of files alone:
  sparktrain fsck hdfs:///runs/mnist --fast
"""
ENQUEUE_EXAMPLES = """\
One more trial, with the next free slot:
  sparktrain enqueue /shared/runs/mnist --param lr=0.01 --param units=64
"""
DRAIN_EXAMPLES = """\
A host before its maintenance: what trains there continues on others, from where it is:
  sparktrain drain hdfs:///runs/mnist --host node-7
  sparktrain drain hdfs:///runs/mnist --host node-7 --cancel
"""
NOTE_EXAMPLES = """\
Why a trial matters, for those who look at the run later:
  sparktrain note /shared/runs/mnist --trial 3 "diverged after the warm-up"
"""
TAG_EXAMPLES = """\
Mark a trial, and remove the mark:
  sparktrain tag /shared/runs/mnist --trial 3 good
  sparktrain tag /shared/runs/mnist --trial 3 good --remove
"""


@with_help(NOTE_EXAMPLES)
def note(
    directory: Directory,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The note.")],
    trial: Annotated[int | None, option(SHOWN, "N", "The trial (default: the only one).", "--trial")] = None,
    debug: Debug = False,
) -> int:
    """Add a note to a trial, of a run that lasts or has ended; report, page, status and results show it."""
    return common.look(lambda out: label_trial(directory, trial, "note", text), as_json=False, debug=debug)


@with_help(TAG_EXAMPLES)
def tag(
    directory: Directory,
    text: Annotated[str, typer.Argument(metavar="TAG", help="The tag.")],
    trial: Annotated[int | None, option(SHOWN, "N", "The trial (default: the only one).", "--trial")] = None,
    remove: Annotated[bool, option(SHOWN, "", "Remove the tag.", "--remove")] = False,
    debug: Debug = False,
) -> int:
    """Tag a trial, of a run that lasts or has ended; report, page, status and results show it."""
    kind: LabelKind = "untag" if remove else "tag"
    return common.look(lambda out: label_trial(directory, trial, kind, text), as_json=False, debug=debug)


def label_trial(directory: str, trial: int | None, kind: "LabelKind", text: str) -> int:
    """Store a note or a tag. Blocks on the store, and up to 2 s on a driver that does not answer."""
    from sparktrain.base.clock import SystemClock
    from sparktrain.runs.additions.trial_labels import add_label
    from sparktrain.runs.locate import LOOK_TIMEOUT_S, run_in
    from sparktrain.runs.logs import check_trial
    from sparktrain.runs.watcher import Observer

    place = run_in(directory, LOOK_TIMEOUT_S)
    view = Observer(place, SystemClock()).look()
    if trial is None and len(view.results) != 1:
        raise SpecError(f"run {view.name} has {len(view.results)} trials: name one with --trial N")
    chosen = view.results[0].id if trial is None else TrialId(trial)
    check_trial(view, chosen)
    add_label(place.store, place.layout, chosen, kind, text)
    return 0


@with_help(
    ENQUEUE_EXAMPLES,
    {
        **LOOKING_CODES,
        2: "the call is wrong: parameters outside of the space, or a run that takes no more trials",
    },
)
def enqueue(
    directory: Directory,
    param: Annotated[
        list[str] | None, option(TRIALS, "NAME=VALUE", "A parameter of the trial. Repeatable.", "--param")
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Add a trial to a running sweep: its driver starts it with the next free slot, before those of its sampler.

    It counts as one of the trials of the sweep, and the sampler learns from its result.
    """
    return common.look(lambda out: add_trial(out, directory, param or []), as_json=as_json, debug=debug)


def add_trial(out: Output, directory: str, params: Sequence[str]) -> int:
    """Add a trial. Blocks on the store, and up to 2 s on a driver that does not answer."""
    from sparktrain.base.formatting import params as shown
    from sparktrain.config.param_files.load import parse_params
    from sparktrain.display.summary import Lines
    from sparktrain.runs.additions.enqueued import enqueue as add
    from sparktrain.runs.locate import LOOK_TIMEOUT_S, run_in
    from sparktrain.runs.results_json import json_value

    place = run_in(directory, LOOK_TIMEOUT_S)
    added = add(place, parse_params(params))
    if out.as_json:
        out.document({"version": 1, "directory": place.where, "id": added.id, "params": json_value(added.params)})
    else:
        out.show(Lines([f"added to {place.where}: {shown(added.params)}; it starts with the next free slot"]))
    return 0


@with_help(
    DRAIN_EXAMPLES,
    {
        **LOOKING_CODES,
        2: "the call is wrong: a host or an agent that the run does not have, or a run that is over",
    },
)
def drain(
    directory: Directory,
    host: Annotated[str | None, option(SHOWN, "HOST", "A host, with all agents on it.", "--host")] = None,
    agent: Annotated[int | None, option(SHOWN, "N", "One agent, by its number.", "--agent")] = None,
    cancel: Annotated[bool, option(SHOWN, "", "Drain it no longer: it gets members again.", "--cancel")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Drain a host or an agent of a running run: it gets no new member, and what trains there moves elsewhere.

    A gang continues on other agents without a lost step, a trial of one member from a checkpoint; one without
    checkpoints is left to finish. No retry is used.
    """
    return common.look(lambda out: drain_agents(out, directory, host, agent, cancel), as_json=as_json, debug=debug)


def drain_agents(out: Output, directory: str, host: str | None, agent: int | None, cancel: bool = False) -> int:
    """Drain a host or an agent, or cancel that. Blocks on the store, and until the driver answers, 30 s at most."""
    from sparktrain.display.summary import Lines
    from sparktrain.runs.additions.drain_requests import drain as ask
    from sparktrain.runs.locate import LOOK_TIMEOUT_S, run_in

    place = run_in(directory, LOOK_TIMEOUT_S)
    decided = ask(place, host, agent, cancels=cancel)
    if out.as_json:
        facts = {"id": decided.request, "host": decided.host, "agent": decided.agent, "cancelled": cancel}
        out.document({"version": 1, "directory": place.where, **facts})
    else:
        subject = decided.host if decided.agent is None else f"agent {decided.agent} on {decided.host}"
        done = "is not drained any more" if cancel else "is being drained; see sparktrain status"
        out.show(Lines([f"{place.where}: {subject} {done}"]))
    return 0


@with_help(
    FSCK_EXAMPLES,
    {
        **LOOKING_CODES,
        0: "nothing is corrupt",
        **{code: EXIT_CODES[code].removeprefix("fsck: ") for code in (7, 8)},
    },
)
def fsck(
    directory: Directory,
    fast: Annotated[bool, option(SHOWN, "", "Compare only sizes, and read no checkpoint.", "--fast")] = False,
    repair: Annotated[
        bool, option(SHOWN, "", "Repair the run so that it can be resumed, and keep all that can be kept.", "--repair")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Verify the journal, plans, code, checkpoints and results, and show what a resume would do.

    Writes nothing without --repair, which is refused while a driver owns the run.
    """
    return common.look(lambda out: verify_run(out, directory, fast, repair, quiet), as_json=as_json, debug=debug)


def verify_run(out: Output, directory: str, fast: bool, repairing: bool, quiet: bool) -> int:
    """Examine and, with `repairing`, repair a run. Blocks on the store."""
    from sparktrain.base.clock import SystemClock
    from sparktrain.display.live import shown_bytes
    from sparktrain.display.summary import Lines
    from sparktrain.runs.locate import run_in
    from sparktrain.runs.upkeep.fsck import RunExaminer
    from sparktrain.runs.upkeep.repair import repair

    place = run_in(directory, without_overview=True)
    repairs = []
    with shown_bytes("verifying", quiet=quiet) as on_bytes:
        examined = RunExaminer(place, fast, on_bytes).examine()
    if repairing and examined.code:
        repairs = repair(place, examined, SystemClock())
        if not out.as_json:
            out.show(Lines([*examined.lines(), "", *(f"repaired: {line}" for line in repairs), ""]))
        examined = RunExaminer(place, True, lambda size, total: None).examine()
    if out.as_json:
        out.document({**examined.document(), "repaired": repairs})
    else:
        out.show(Lines(examined.lines()))
    return examined.code


@with_help(GC_EXAMPLES, {**LOOKING_CODES, 7: "a checkpoint that stays is corrupt"})
def gc(
    directory: Directory,
    keep: Annotated[
        str,
        option(
            DELETED,
            "each|best|none",
            "Which checkpoints stay of trials that have a result: of each trial the newest and the best (the default), "
            "those of the best trial alone, or none.",
            "--checkpoints",
        ),
    ] = "each",
    older_than: Annotated[
        str, option(DELETED, "TIME", "Orphaned files are deleted when they are older (default: 1h).")
    ] = "1h",
    dry_run: Annotated[bool, option(SHOWN, "", "Delete nothing; show what would be deleted.", "--dry-run")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Make room: delete checkpoints that no run needs any more, and files that dead writers have left.

    Trials without a result keep all that a driver needs to resume them. Refused while a driver owns the run.
    """
    return common.look(lambda out: make_room(out, directory, keep, older_than, dry_run), as_json=as_json, debug=debug)


def make_room(out: Output, directory: str, keep: str, older_than: str, dry_run: bool) -> int:
    """Delete what no run needs. Blocks on the store."""
    from sparktrain.base.clock import SystemClock
    from sparktrain.config.quantities import seconds
    from sparktrain.display.summary import Lines
    from sparktrain.runs.locate import run_in
    from sparktrain.runs.upkeep.gc import Tidier, keep_of
    from sparktrain.runs.watcher import this_process

    chosen = keep_of(keep)
    older_than_s = seconds(older_than, "--older-than") or 0.0
    clock = SystemClock()
    tidier = Tidier(run_in(directory), chosen, older_than_s, clock)
    leftovers = tidier.find() if dry_run else tidier.tidy(this_process(clock, "sparktrain gc"))
    if out.as_json:
        out.document(leftovers.document())
    else:
        out.show(Lines(leftovers.lines()))
    return leftovers.code
