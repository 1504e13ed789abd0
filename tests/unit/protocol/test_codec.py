"""Every message survives the codec, and nothing but a message passes it."""

from functools import cache
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.base.ids import Generation, Member, RunId, TrialId
from sparktrain.config.server_settings import ServerMode, ServerSettings
from sparktrain.errors import ProtocolError
from sparktrain.protocol import codec, messages, pipe_messages
from sparktrain.protocol.member_call import MemberCall
from tests.support.examples import examples

UNIONS = (
    messages.FromAgent,
    messages.ToAgent,
    pipe_messages.FromZygote,
    pipe_messages.ToZygote,
    pipe_messages.FromMember,
    pipe_messages.ToMember,
    messages.UploadHeader,
    messages.UploadDone,
)
KINDS = [kind for union in UNIONS for kind in (get_args(union) or (union,))]

integers = st.integers(-(2**63), 2**64 - 1)
text = st.text(st.characters(exclude_categories=["Cs"]))
leaves = st.none() | st.booleans() | integers | st.floats(allow_nan=False) | text
values = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(text, inner), max_leaves=5)

st.register_type_strategy(int, integers)
st.register_type_strategy(float, st.floats(allow_nan=False))
st.register_type_strategy(str, text)


@cache
def instances(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Any instance of `kind`; one strategy for all examples, because Hypothesis checks each new one."""
    if kind is ServerSettings:
        return st.builds(ServerSettings, st.just(ServerMode.SYNC), st.integers(3, 9), st.integers(0, 2))
    return st.builds(kind, **{field.name: of_type(field.type) for field in msgspec.structs.fields(kind)})


def of_type(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of `kind`."""
    if kind is Any:
        return values
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return instances(kind)
    if kind == dict[str, Any]:
        return st.dictionaries(text, values)
    arguments = [argument for argument in get_args(kind) if argument is not Ellipsis]
    if getattr(kind, "__origin__", None) is dict:
        return st.dictionaries(of_type(arguments[0]), of_type(arguments[1]), max_size=2)
    if getattr(kind, "__origin__", None) is tuple:
        return st.lists(of_type(arguments[0]), max_size=3).map(tuple)
    if type(None) in arguments:
        return st.none() | of_type(next(argument for argument in arguments if argument is not type(None)))
    return st.from_type(kind)


def union_of(kind: type) -> Any:
    """The union that `kind` is sent in."""
    return next(union for union in UNIONS if kind is union or kind in get_args(union))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@examples(30)
def test_round_trip(kind: type[msgspec.Struct], data: st.DataObject) -> None:
    message = data.draw(instances(kind))
    assert codec.decode(codec.encode(message), union_of(kind)) == message


def check_decoded_or_refused(data: bytes, union: Any) -> None:
    """`data` is decoded to a message or refused with ProtocolError; never anything else."""
    try:
        message = codec.decode(data, union)
    except ProtocolError:
        return
    assert isinstance(message, messages.Message)


@pytest.mark.parametrize("union", UNIONS, ids=str)
@given(data=st.binary(max_size=300))
def test_garbage_is_refused(union: Any, data: bytes) -> None:
    check_decoded_or_refused(data, union)


@pytest.mark.long
@given(message=instances(messages.MemberEnded) | instances(messages.Join), data=st.data())
@examples(300)
def test_damaged_message_is_refused(message: msgspec.Struct, data: st.DataObject) -> None:
    encoded = bytearray(codec.encode(message))
    at = data.draw(st.integers(0, len(encoded) - 1))
    match data.draw(st.sampled_from(["cut", "flip", "insert"])):
        case "cut":
            del encoded[at:]
        case "flip":
            encoded[at] ^= data.draw(st.integers(1, 255))
        case "insert":
            encoded[at:at] = data.draw(st.binary(min_size=1, max_size=5))
    check_decoded_or_refused(bytes(encoded), messages.FromAgent)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_message_of_another_union_is_refused(kind: type[msgspec.Struct]) -> None:
    tag = msgspec.msgpack.encode({"type": kind.__name__})
    for union in UNIONS:
        if kind is not union and kind not in get_args(union):
            with pytest.raises(ProtocolError):
                codec.decode(tag, union)


def test_invalid_utf_8_is_refused() -> None:
    data = codec.encode(messages.Leave("xx")).replace(b"xx", b"\xff\xfe")
    with pytest.raises(ProtocolError):
        codec.decode(data, messages.FromAgent)


def test_too_deeply_nested_value_is_refused() -> None:
    member = Member(RunId("r"), TrialId(0), Generation(1))
    start = messages.StartMember(member=member, call=MemberCall(params={"x": None}, seed=0))
    data = codec.encode(start).replace(b"\xa1x\xc0", b"\xa1x" + b"\x91" * 100_000 + b"\xc0")
    with pytest.raises(ProtocolError):
        codec.decode(data, messages.ToAgent)
