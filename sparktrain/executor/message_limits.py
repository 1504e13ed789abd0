"""Splits or shortens messages of an agent that are too large to send. Pure."""

from collections.abc import Iterator

from msgspec.structs import replace

from sparktrain.protocol import messages as m
from sparktrain.protocol.codec import encode

TEXT_CHARS = 8_000
"""The kept length of a text that is too long; in UTF-8 at most four times as many bytes."""


def fitting(message: m.FromAgent) -> Iterator[m.FromAgent]:
    """The messages to send for `message`: itself, if it is not too large.

    Results and single reports fit: the member's process refuses larger ones with an error for the user.
    """
    if len(encode(message)) <= message.most_bytes:
        yield message
        return
    match message:
        case m.MemberReported(reports=reports) if len(reports) > 1:
            middle = len(reports) // 2
            for part in (reports[:middle], reports[middle:]):
                yield from fitting(replace(message, reports=part))
        case m.CheckpointFailed(problem=text) | m.MemberStored(problem=text):
            yield replace(message, problem=cut(text))
        case m.Leave(reason=text):
            yield replace(message, reason=cut(text))
        case m.Ready(failed_imports=failed):
            yield replace(message, failed_imports={name: cut(text, TEXT_CHARS // 10) for name, text in failed.items()})
        case _:
            yield message  # the link ends with an error that names it


def cut(text: str, chars: int = TEXT_CHARS) -> str:
    """`text`, shortened to about `chars` characters when it is longer."""
    return text if len(text) <= chars else f"{text[:chars]} ... ({len(text) - chars:,} characters more)"
