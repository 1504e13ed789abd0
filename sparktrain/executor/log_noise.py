"""Drops what TensorFlow's libraries write about the machine from the logs of trials, where it would come first.

These are lines of C++ with a known source file: that no CUDA is there, which instructions the processor has, that
oneDNN rounds differently. Everything else stays as it is, also other lines of TensorFlow and warnings of Python. Where
`TF_CPP_MIN_LOG_LEVEL` is in the environment of a trial, its user has chosen what is logged, and nothing is dropped.
"""

import os
import re
from collections.abc import Mapping

CHOSEN_BY = "TF_CPP_MIN_LOG_LEVEL"
"""The variable by which users of TensorFlow choose what its libraries log."""
_HEAD = rb"(?:[IWE]\d{4} \d\d:\d\d:[\d.]+ +\d+ |\d{4}-\d\d-\d\d \d\d:\d\d:[\d.]+: [IWE] )(?:[\w./-]*/)?"
_NOISE = re.compile(
    rb"^(?:" + _HEAD + rb"(?:port|util)\.cc:\d+\] oneDNN custom operations are on"
    rb"|" + _HEAD + rb"cpu_feature_guard\.cc:\d+\] "
    rb"|" + _HEAD + rb"cudart_stub\.cc:\d+\] Could not find cuda drivers"
    rb"|" + _HEAD + rb"cuda_(?:fft|dnn|blas)\.cc:\d+\] Unable to register cu\w+ factory"
    rb"|" + _HEAD + rb"cuda_(?:platform|driver)\.cc:\d+\] failed call to cuInit:.*(?:\(303\)|CUDA_ERROR_NO_DEVICE)"
    rb"|" + _HEAD + rb"cuda_diagnostics\.cc:\d+\] "
    rb"|WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR"
    rb"|\[Gloo\] Rank \d+ is connected to \d+ peer ranks\. "
    rb"|To enable the following instructions: .* in other operations, rebuild TensorFlow"
    rb").*\n?",
    re.MULTILINE,
)
"""A GPU that is there and does not work is no noise: `cuInit` fails with other errors then."""
_START = re.compile(rb"[IWET\[\d]")
_LONGEST = 1024
"""More bytes without an end of the line are no line of noise."""


def is_chosen(variables: Mapping[str, str]) -> bool:
    """Whether the user has chosen what TensorFlow logs, by the `variables` of a trial or those of this agent."""
    return CHOSEN_BY in variables or CHOSEN_BY in os.environ


def without_noise(content: bytes) -> bytes:
    """The lines of a log without those about the machine."""
    return _NOISE.sub(b"", content)


class NoiseFilter:
    """The same for a log that comes in pieces: holds the start of a line back only as long as it may be noise."""

    def __init__(self) -> None:
        self._held = b""
        self._inside = False
        """The start of the line was shown already."""

    def __call__(self, piece: bytes) -> bytes:
        """What may be shown of the log up to the end of `piece`, and was not yet."""
        shown = b""
        if self._inside:
            shown, end, piece = piece.partition(b"\n")
            shown += end
            if not end:
                return shown
            self._inside = False
        lines, end, last = (self._held + piece).rpartition(b"\n")
        shown += without_noise(lines + end)
        if len(last) <= _LONGEST and _START.match(last):
            self._held = last
            return shown
        self._held = b""
        self._inside = bool(last)
        return shown + last

    def remainder(self) -> bytes:
        """What was held back, at the end of the log."""
        return without_noise(self._held)
