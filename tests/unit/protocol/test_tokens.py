"""The message that is a secret travels like any other, and is never shown."""

import pytest

from sparktrain.errors import ProtocolError
from sparktrain.protocol import codec
from sparktrain.protocol.link_rules import AGENT_SPEECH, COORDINATOR_SPEECH
from sparktrain.protocol.messages import Tokens, Welcome

CANARY = b"HDTS\x01canary"


def test_agents_get_what_was_sent() -> None:
    data = codec.encode(Tokens(CANARY))
    assert codec.decode(data, COORDINATOR_SPEECH.kind) == Tokens(CANARY)
    COORDINATOR_SPEECH.check(Welcome, Tokens(CANARY))


def test_agents_may_not_send_it_and_the_refusal_does_not_show_it() -> None:
    with pytest.raises(ProtocolError) as caught:
        codec.decode(codec.encode(Tokens(CANARY)), AGENT_SPEECH.kind)
    assert "canary" not in str(caught.value)


def test_it_is_never_shown() -> None:
    for shown in (repr(Tokens(CANARY)), str(Tokens(CANARY)), f"{[Tokens(CANARY)]}"):
        assert "canary" not in shown
        assert "Tokens(11 bytes)" in shown
