"""What a call asks of its coordinator beyond the plan of the run, in the run directory."""

from typing import Self

import msgspec
from msgspec import Struct

from sparktrain.base.decoding import from_json
from sparktrain.config.sampler_names import OBJECT, is_object
from sparktrain.datasets.manifest import MemberData
from sparktrain.driver.prepare.checked_call import CheckedCall, Observers, ResumeRules, SlotRequest
from sparktrain.driver.prepare.run_definition import RunDefinition
from sparktrain.errors import RunDirectoryError, SpecError
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs import plan as plans
from sparktrain.runs.additions.stop_requests import stop_names
from sparktrain.search.named_samplers import stored_choice
from sparktrain.search.space_json import from_document
from sparktrain.store.base import Store
from sparktrain.usercode.serialize import unpickled

VERSION = 1


class ClusterCall(Struct, frozen=True, kw_only=True):
    """One call; `call.json` in its folder has it."""

    version: int = VERSION
    plan: str
    """The digest of the plan, which the run directory has."""
    agents: int
    """How many agents there are, in all."""
    without_gpus: int = 0
    """How many of them have executors of their own without GPUs."""
    requested_agents: int | None = None
    """How many agents the call itself asks for."""
    old_stops: frozenset[str] = frozenset()
    """The requests to stop that were in the run directory before this call."""
    concurrent: int | None = None
    retry_failed: bool = False
    allow_changed: frozenset[str] = frozenset()
    extends: bool = False
    data: MemberData = MemberData()
    """Where the datasets are, which the client has written."""

    @classmethod
    def of(cls, call: CheckedCall, agents: int, without_gpus: int, data: MemberData) -> Self:
        """What a coordinator needs of a checked call. Blocks on the store; raises OSError."""
        rules = call.resume_rules
        definition = call.definition
        return cls(
            plan=call.definition.plan.digest,
            agents=agents,
            without_gpus=without_gpus,
            requested_agents=call.slots.agents,
            old_stops=stop_names(definition.store, definition.layout),
            concurrent=call.slots.concurrent,
            retry_failed=rules.retry_failed,
            # The client has compared code and space with those of the run that was there.
            allow_changed=rules.allow_changed,
            extends=rules.extends,
            data=data,
        )

    def checked(
        self, store: Store, layout: RunLayout, env: dict[str, str], callbacks: bytes, *, succeeds: bool
    ) -> CheckedCall:
        """The call in the process of a coordinator; `succeeds`: an earlier coordinator of it has started the run.

        `callbacks` are pickled, and empty where there are none. Blocks on the store. Raises RunDirectoryError, OSError.
        """
        plan = plans.read(store, layout, self.plan)
        sampler = None if plan.sampler is msgspec.UNSET else stored_choice(plan.sampler)
        return CheckedCall(
            definition=RunDefinition(
                plan=plan,
                spec=plan.sweep_spec(),
                space=from_document(plan.space),
                code=plans.read_code(store, layout, plan.code),
                store=store,
                layout=layout,
                sampler=sampler,
            ),
            resume_rules=ResumeRules(
                allow_changed=self.allow_changed,
                retry_failed=self.retry_failed,
                extends=self.extends,
                succeeds=succeeds,
                old_stops=self.old_stops,
            ),
            observers=Observers(progress=False, callbacks=tuple(unpickled(callbacks)()) if callbacks else ()),
            env=env,
            slots=SlotRequest(agents=self.requested_agents, concurrent=self.concurrent),
            cache=self.data,
        )


def write_call(store: Store, layout: RunLayout, call: str, stored_call: ClusterCall) -> None:
    """Store what a call asks for. Blocks; raises OSError."""
    store.put_if_absent(layout.coordinator(call).call, msgspec.json.encode(stored_call))


def read_call(store: Store, layout: RunLayout, call: str) -> ClusterCall:
    """What a call asks for. Blocks. Raises RunDirectoryError for another version's, OSError."""
    path = layout.coordinator(call).call
    try:
        stored_call = from_json(store.read(path), ClusterCall)
    except msgspec.MsgspecError as error:
        raise RunDirectoryError(f"{store.where(path)} is no call of this sparktrain ({error})") from error
    if stored_call.version != VERSION:
        raise RunDirectoryError(
            f"{store.where(path)} has version {stored_call.version}, and this sparktrain reads version {VERSION}: give "
            "executors the sparktrain of the client"
        )
    return stored_call


def most_agents(store: Store, layout: RunLayout) -> int:
    """The most agents that a call with its coordinator in the cluster has asked for; 0 where none was. Blocks."""
    agents = [0]
    for path in store.list(layout.coordinators):
        if path.endswith("/call.json"):
            try:
                agents.append(from_json(store.read(path), ClusterCall).agents)
            except (msgspec.MsgspecError, FileNotFoundError):  # of another version, or deleted meanwhile
                continue
    return max(agents)


def check_storable(call: CheckedCall) -> None:
    """Raise SpecError for a sampler or a space that a run directory cannot hold, or a stream."""
    plan = call.definition.plan
    if plan.sampler is not msgspec.UNSET and is_object(plan.sampler):
        raise SpecError(
            f"sampler={plan.sampler.removeprefix(OBJECT)} with coordinator='cluster': the coordinator reads the run "
            "from its directory, which holds the names of samplers and no objects; name a sampler, such as "
            "sampler='tpe', or leave coordinator out"
        )
    from_document(plan.space)
    if streams := call.data.streams:
        raise SpecError(
            f"the stream {next(iter(streams))!r} with coordinator='cluster': Spark jobs of this process feed streams, "
            "so they end with it; pass a DataFrame, which is written first, or leave coordinator out"
        )
