"""The last stage of a run: what the coordinator gets of an owned run, with a sampler that knows its past."""

import logging
from functools import partial

import msgspec

from sparktrain.base.garbage import uncollected
from sparktrain.datasets.manifest import MemberData
from sparktrain.display.progress import Display
from sparktrain.driver.continuation.enqueued_sampler import EnqueuedSampler
from sparktrain.driver.continuation.warm_start import with_warm_start
from sparktrain.driver.prepare.owned_run import OwnedRun
from sparktrain.driver.run_request import RunRequest
from sparktrain.driver.sampler_thread import guarded_aside
from sparktrain.runs.additions.enqueued import pending
from sparktrain.runs.history import past, past_answers
from sparktrain.search.sampler import AnsweringSampler, Sampler
from sparktrain.state.events import Allotment

logger = logging.getLogger("sparktrain")


@uncollected()
def request_of(owned: OwnedRun, agents: int, display: Display, data: MemberData | None = None) -> RunRequest:
    """The run for the coordinator, on so many agents; `data` is what `OwnedRun.write_data` returned.

    Blocks on the store. Raises OSError.
    """
    spec = owned.definition.spec
    call = owned.run.call
    for note in owned.contents.notes:
        logger.warning("%s", note)
    base_sampler = owned.definition.new_sampler(max(1, agents // spec.gang.size))
    sampler = _continued(base_sampler, owned)
    return RunRequest(
        owned=owned,
        sampler=sampler,
        total=None if sampler.total is None else sampler.total * spec.replication.size,
        allotment=Allotment(agents=agents, most=agents, weight=call.slots.weight, priority=call.slots.priority),
        display=display,
        driver_started=owned.run.driver_started,
        lookahead=0 if isinstance(base_sampler, AnsweringSampler) else 1,  # what a trial asks is answered once it runs
        data=call.cache if data is None else data,
    )


def _continued(sampler: Sampler, owned: OwnedRun) -> Sampler:
    """The sampler with what the run started with, what users add, and what earlier drivers had. Blocks on the store."""
    definition = owned.definition
    plan = definition.plan
    records = owned.contents.records
    is_answering = isinstance(sampler, AnsweringSampler)
    if isinstance(sampler, AnsweringSampler):
        sampler.open(owned.id, past_answers(records), definition.where)
    sampler = with_warm_start(sampler, None if plan.warm is msgspec.UNSET else plan.warm)
    if plan.kind == "sweep" and not is_answering:
        requests = partial(pending, definition.store, definition.layout)
        sampler = EnqueuedSampler(sampler, definition.space, requests, listed=plan.sampler is msgspec.UNSET)
    restore = partial(sampler.restore, past(records, definition.spec.metric))
    # The sampler may be the user's: one that exits or hangs must not take the driver with it.
    guarded_aside("given what earlier drivers had", restore, definition.spec.timeout_s)
    return sampler
