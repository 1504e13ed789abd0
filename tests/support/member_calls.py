"""The call of a member by one flat list of keywords, for tests that change single facts of it."""

from typing import Any

from sparktrain.protocol.member_call import MemberCall, MemberGang


def member_call(**changes: Any) -> MemberCall:
    """A call without parameters in a gang of one, but for `changes`: fields of `MemberCall` and `MemberGang`."""
    gang = {name: changes.pop(name) for name in MemberGang.__struct_fields__ if name in changes}
    values: dict[str, Any] = {"params": {}, "seed": 1} | changes
    return MemberCall(**values, gang=MemberGang(**gang))
