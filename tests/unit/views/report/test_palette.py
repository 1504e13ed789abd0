"""The colours of charts: readable on a light and on a dark page, also for people who confuse red and green."""

import math
import re
from itertools import combinations, pairwise

import pytest

from sparktrain.views.report.html import asset
from sparktrain.views.report.palette import BEST, RAMP_DARK, RAMP_LIGHT, SERIES, STATUS_COLOURS, ramp_colour

LIGHT, DARK, NOTEBOOK = "#ffffff", "#191f29", "#111111"
GRAPHICS, TEXT = 3.0, 4.5
"""Contrasts that WCAG 2.2 asks for (1.4.11, 1.4.3)."""
DISTINCT = 18.0
"""Differences in CIELAB from about 2 on are seen beside each other, those of this size at a glance."""
SEEN_AS = {
    "all": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
"""Matrices over linear RGB of Machado, Oliveira and Fernandes (2009) for whole deficiencies."""


def linear(colour: str) -> list[float]:
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def luminance(colour: str) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def lab(colour: str, vision: str) -> tuple[float, float, float]:
    channels = linear(colour)
    red, green, blue = (
        min(1.0, max(0.0, sum(factor * channel for factor, channel in zip(line, channels, strict=True))))
        for line in SEEN_AS[vision]
    )
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883
    a, b, c = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in (x, y, z))
    return 116 * b - 16, 500 * (a - b), 200 * (b - c)


@pytest.mark.parametrize(
    "colour", [BEST, *STATUS_COLOURS.values(), *SERIES, *map(ramp_colour, (0, 0.25, 0.5, 0.75, 1))]
)
def test_a_colour_stands_out_on_every_page(colour: str) -> None:
    for page in (LIGHT, DARK, NOTEBOOK):
        assert contrast(colour, page) >= GRAPHICS, page


@pytest.mark.parametrize("vision", SEEN_AS)
def test_what_occurs_together_is_distinguished(vision: str) -> None:
    together = {"best": BEST} | {name: STATUS_COLOURS[name] for name in ("succeeded", "running", "pruned", "failed")}
    for one, other in combinations(together, 2):
        assert math.dist(lab(together[one], vision), lab(together[other], vision)) >= DISTINCT, (one, other)


@pytest.mark.parametrize(("ramp", "page"), [(RAMP_LIGHT, LIGHT), (RAMP_DARK, DARK)])
def test_the_better_end_of_the_ramp_stands_out_most(ramp: tuple[str, ...], page: str) -> None:
    contrasts = [contrast(colour, page) for colour in ramp]
    assert contrasts[0] >= GRAPHICS
    assert contrasts[-1] >= 10
    assert all(after > before for before, after in pairwise(contrasts))


def test_inks_of_texts_are_readable_on_their_surfaces() -> None:
    light, dark = re.findall(r":root \{\n(?:\s+color-scheme[^\n]*\n)?(.*?)\}", asset("app.css").decode(), re.DOTALL)
    for part in (light, dark):
        inks = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", part))
        for ink in ("text", "muted", "accent", "danger"):
            for surface in ("card", "page", "soft", "code"):
                assert contrast(inks[ink], inks[surface]) >= TEXT, (ink, surface)
        assert contrast(inks["text"], inks["warn"]) >= TEXT


def test_the_page_has_the_palette_and_no_other_colours_of_charts() -> None:
    css = asset("app.css").decode()
    for name, colour in {"best": BEST, **STATUS_COLOURS}.items():
        assert f"--{name}: {colour};" in css
    scripts = asset("app.js").decode()
    assert re.findall(r"#[0-9a-fA-F]{6}\b|rgba?\(\d", scripts) == []
