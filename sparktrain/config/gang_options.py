"""The options of a call about its members; a part of `option_catalog`."""

from typing import Literal

from sparktrain.config.call_option import Keywords, option, options_in, settled
from sparktrain.config.option_rules import FLAG, SWITCH, WAIT, ValueRule, integer, whole_or_none
from sparktrain.config.panels import GANG, SIZE
from sparktrain.config.server_settings import ServerMode, server_mode


class AveragingKeywords(Keywords):
    """Options about when the members of a gang average."""

    local_steps: int | None = option(
        "Steps that each member trains by itself before all members average their weights.",
        whole_or_none(1),
        panel=GANG,
        default_text="none: members average gradients in each step",
        page="gangs.md#local-steps",
        also=("local_iterations", "averaging_period", "sync_every", "interval_steps"),
    )


class GangKeywords(AveragingKeywords):
    """Options about the members of a run's gang."""

    workers: int = option(
        "Members that train, including the chief.",
        integer(1),
        panel=SIZE,
        flag_doc="Members that train; needed here or in --params, but for a script, which has 1.",
        page="gangs.md",
        also=("num_workers", "num_executors", "cluster_size", "world_size", "np"),
        required=True,
    )
    ps: int = option(
        "Parameter servers in addition to workers, with backend tensorflow or parameter-server.",
        integer(0),
        default=0,
        panel=GANG,
        page="strategies.md",
    )
    ps_mode: ServerMode = option(
        "When a gradient counts, with backend parameter-server: async, staleness-aware, sync or local-sgd.",
        ValueRule(server_mode, "NAME", takes=Literal["async", "staleness-aware", "sync", "local-sgd"]),
        default=ServerMode.ASYNC,
        panel=GANG,
        page="parameter-server.md#modes",
    )
    backup_workers: int = option(
        "How many gradients of a round may be missing, with ps_mode sync.",
        integer(0),
        default=0,
        panel=GANG,
        page="parameter-server.md#modes",
    )
    evaluator: bool = option(
        "Add a member that evaluates, with backend tensorflow.",
        FLAG,
        default=False,
        panel=GANG,
        page="strategies.md",
    )
    min_workers: int | None = option(
        "Continue with this many members when agents are lost for good.",
        integer(1),
        panel=GANG,
        default_text="wait for all",
        page="gangs.md",
    )
    standby: int = option(
        "Processes that wait, prepared, to take the place of a lost member, on agents of their own.",
        integer(0),
        default=0,
        panel=GANG,
        page="gangs.md#standbys",
        also=("standbys", "spares", "hot_spares", "spare_members"),
    )
    spread: bool = option(
        "Place no more than half of a gang's members on one host, where other hosts have agents for them.",
        FLAG,
        default=False,
        panel=GANG,
        page="gangs.md#hosts-that-fail",
        also=("spread_members", "anti_affinity", "placement"),
    )
    hang_timeout: float = option(
        "End a member that reports no step for this time.", WAIT, default=120.0, default_text="120s", panel=GANG
    )


class MemberKeywords(Keywords):
    """Options that each member of a run, and the agent that starts it, read as the call has them.

    Nothing between names them: the specification of the run, its plan and `MemberCall` hold the whole record.
    """

    log_limit: int = option(
        "Most bytes to keep of each member's log.",
        integer(2**10),
        default=2**30,
        default_text="1 GiB",
    )
    healing: bool = option(
        "Whether the other members of a gang keep their processes when one is lost, where their program can.",
        SWITCH,
        default=True,
        panel=GANG,
        default_text="on",
        page="gangs-reference.md#rings-that-heal",
    )


# A plan outlives the version that wrote it: an option keeps the key that its first version stored it by.
_FIRST_KEYS = {"log_limit": "log_limit_bytes"}
STORED_KEYS = {name: _FIRST_KEYS.get(name, name) for name in options_in(MemberKeywords)}
"""The key of each option in the specification that a plan stores."""
MEMBER_DEFAULTS = settled(MemberKeywords, {})
"""What members get from calls that set none of them."""
