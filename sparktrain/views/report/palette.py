"""The colours of all charts, with one meaning each: the same on the page, in reports and in notebooks. Pure.

Each colour has a contrast of 3:1 at least with the light and with the dark background of a page, for a notebook does
not show which of them it has. Statuses that occur together also differ for people who confuse red and green: the test
of this module computes how they see them.
"""

from collections.abc import Mapping

from sparktrain.state.trial import TrialStatus

BEST = "#086cc7"
"""The best trial, and the best value so far."""
_WAITING = "#848c9a"
STATUS_COLOURS: Mapping[str, str] = {
    TrialStatus.SUCCEEDED.value: "#2fa06d",
    TrialStatus.RUNNING.value: "#8155f6",
    TrialStatus.QUEUED.value: _WAITING,
    TrialStatus.PAUSED.value: "#6d89a7",
    TrialStatus.PRUNED.value: "#b27608",
    TrialStatus.STOPPED.value: "#6f7783",
    TrialStatus.FAILED.value: "#d02c41",
    TrialStatus.LOST.value: "#d6197f",
    "restarted": "#b74e25",
    "idle": _WAITING,
}
"""What became of a trial, of a gang, or of the time of a slot. A result has the colour of its trial."""
SERIES = ("#158094", "#ad6a2f", "#74831f", "#9d62ab", "#4f76bd", "#c4587f", "#4c8c55", "#85735f")
"""Things without a status beside each other, such as several runs."""
# Both ramps end in the colour with the most contrast: the best trials were pale yellow on white before.
RAMP_LIGHT = ("#848c9a", "#5f86c4", "#3f78c8", "#0d5cb5", "#083a7a")
"""From the worst trial to the best one, on a light page: the better, the darker."""
RAMP_DARK = ("#6b7482", "#5f86bd", "#5f9de8", "#8fbfff", "#cfe3ff")
"""The same on a dark page: the better, the brighter."""


def ramp_colour(strength: float) -> str:
    """From the worst (0) to the best (1) where the background is not known: the ends differ in hue, not in light."""
    share = min(1.0, max(0.0, strength))
    channels = [
        round(int(_WAITING[place : place + 2], 16) * (1 - share) + int(BEST[place : place + 2], 16) * share)
        for place in (1, 3, 5)
    ]
    return "#" + "".join(f"{channel:02x}" for channel in channels)


def status_colour(status: str) -> str:
    """The colour of a status or of the kind of a bar; another word is drawn as waiting."""
    return STATUS_COLOURS.get(status, _WAITING)


def as_css() -> str:
    """The colours as properties of CSS, such as `--succeeded`."""
    fixed = {"best": BEST, **STATUS_COLOURS, **{f"series-{place}": colour for place, colour in enumerate(SERIES)}}
    light = _properties(fixed | _ramp(RAMP_LIGHT))
    dark = _properties(_ramp(RAMP_DARK))
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"


def _ramp(colours: tuple[str, ...]) -> dict[str, str]:
    return {f"ramp-{place}": colour for place, colour in enumerate(colours)}


def _properties(colours: Mapping[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())
