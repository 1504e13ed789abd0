"""Plots as SVG: what they show, of whatever values, in a limited size."""

import math
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from sparktrain.views.notebook import charts
from sparktrain.views.notebook.axes import powers, scale, tick_label, ticks
from tests.unit.views.notebook.pages import checked

HOSTILE = ["<script>alert(1)</script>", "x" * 200, "🙂" * 90, "a\"b'c&amp;", "\x1b[2J\x00\n", "\ud800"]
EXTREMES = [math.nan, math.inf, -math.inf, 1e300, -1e300, 1.7e308, 5e-324, 0.0, -0.0, 1.0]
MOST = 100_000
SVG = "{http://www.w3.org/2000/svg}"


def elements(drawing: str, tag: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(drawing).iter(SVG + tag))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (0.81, 0.93, ["0.85", "0.90"]),
        (-3, 14, ["0", "5", "10"]),
        (0, 9_000_000, ["0", "2e+06", "4e+06", "6e+06", "8e+06"]),
    ],
)
def test_ticks_are_round_and_distinct(low: float, high: float, expected: list[str]) -> None:
    found = ticks(low, high)
    step = min(b - a for a, b in pairwise(found))
    assert [tick_label(value, step) for value in found] == expected
    assert len({tick_label(value, step) for value in found}) == len(found)


@pytest.mark.parametrize(
    ("low", "high"), [(1.0, 1.0), (1e300, -1e300), (1.0, 1.0 + 2e-16), (-1e300, 1e300), (0, 5e-324)]
)
def test_ticks_of_any_ends_are_few(low: float, high: float) -> None:
    found = ticks(low, high)
    assert 1 <= len(found) <= 20
    assert all(map(math.isfinite, found))


def test_a_logarithmic_scale_needs_positive_values() -> None:
    made = scale([1e-4, 1e-1], 0, 300, log=True)
    assert made.log
    assert [round(made(value)) for value in (1e-4, 1e-3, 1e-2, 1e-1)] == [0, 100, 200, 300]
    assert powers(1e-4, 1e-1) == [1e-4, 1e-3, 1e-2, 1e-1]
    assert not scale([-1e-4, 1e-1], 0, 300, log=True).log


def test_history_shows_each_trial_and_the_best_line() -> None:
    values = [charts.Value(trial, value, f"trial {trial}") for trial, value in enumerate([0.5, 0.4, 0.9])]
    drawing = charts.history(values, [(0, 0.5), (2, 0.9)], ("trial", "accuracy"))
    dots = elements(drawing, "circle")
    assert [dot[0].text for dot in dots] == [
        "trial 0", "trial 1", "trial 2",
    ]  # fmt: skip
    heights = [float(dot.get("cy", "")) for dot in dots]
    assert heights[2] < heights[0] < heights[1]
    [line] = elements(drawing, "polyline")
    assert len(line.get("points", "").split()) == 4  # to the second best, up, and on to the right end


def test_a_history_of_many_trials_keeps_the_best_ones() -> None:
    values = [charts.Value(trial, math.sin(trial), "x" * 60) for trial in range(10_000)]
    values[4321] = charts.Value(4321, 2.0, "peak")
    drawing = charts.history(values, [(0, 0.0), (4321, 2.0)], ("trial", "loss"))
    checked(drawing, MOST)
    assert len(elements(drawing, "circle")) <= charts.DOTS + 2
    assert any(dot[0].text == "peak" for dot in elements(drawing, "circle"))


@pytest.mark.parametrize("name", HOSTILE)
def test_names_of_users_stay_text(name: str) -> None:
    values = [charts.Value(0, 0.5, name), charts.Value(1, 0.6, name)]
    curve = charts.Curve(name, [(0, 1.0), (1, 2.0)], strong=True)
    dimensions = [charts.Dimension(name, [0, 1], [name, "b"]), charts.Dimension(name, [0.5, 0.6])]
    for drawing in (
        charts.history(values, [(0, 0.5)], (name, name)),
        charts.curves([curve, charts.Curve(name, [(0, 1.0)])], None, (name, name)),
        charts.parallel(dimensions, [0.0, 1.0], [name, name]),
        charts.timeline([charts.Span(name, 0, 1, name, name)], (name, name)),
        charts.bars([charts.Share(name, 0.5, 0.4, 0.6)], name),
    ):
        page = checked(drawing, 20_000)
        assert "script" not in page.tags
        assert "\x1b" not in drawing


@pytest.mark.parametrize("first", EXTREMES)
@pytest.mark.parametrize("second", EXTREMES)
def test_any_values_make_a_drawing(first: float, second: float) -> None:
    pair = [first, second]
    band = charts.Quantiles("others", [0, 1], pair, pair, pair)
    for drawing in (
        charts.history([charts.Value(at, value) for at, value in enumerate(pair)], [], ("trial", "loss")),
        charts.curves([charts.Curve("a", list(enumerate(pair)))], band, ("step", "loss")),
        charts.parallel([charts.Dimension("lr", pair), charts.Dimension("loss", [1.0, None])], pair, ["a", "b"]),
        charts.timeline([charts.Span("a", 0.0, abs(first), "failed")] if math.isfinite(first) else [], ("s", "slot")),
        charts.bars([charts.Share("lr", first, 0.0, second), charts.Share("units", second, 0.0, 1.0)], "importance"),
    ):
        checked(drawing, 20_000)
        assert "nan" not in drawing


def test_empty_drawings() -> None:
    for drawing in (
        charts.history([], [], ("trial", "loss")),
        charts.curves([], None, ("step", "loss")),
        charts.parallel([], [], []),
        charts.timeline([], ("seconds", "slot")),
        charts.bars([], "importance"),
    ):
        checked(drawing, 10_000)


@pytest.mark.long
def test_curves_of_many_trials_are_limited() -> None:
    lines = [
        charts.Curve(f"trial {trial}", [(step, math.exp(-step / (trial + 1))) for step in range(500)])
        for trial in range(300)
    ]
    drawing = charts.curves(lines, None, ("step", "loss"))
    checked(drawing, 300_000)
    assert len(elements(drawing, "polyline")) == 300


@pytest.mark.long
def test_a_curve_that_is_thinned_keeps_its_peak() -> None:
    points = [(float(step), 0.0) for step in range(100_000)]
    points[54_321] = (54_321.0, 9.0)
    drawing = charts.curves([charts.Curve("a", points)], None, ("step", "loss"))
    [line] = elements(drawing, "polyline")
    places = [tuple(map(float, each.split(","))) for each in line.get("points", "").split()]
    assert len(places) <= 12_000
    assert min(y for _, y in places) < min(places[0][1], places[-1][1]) - 100


def test_parallel_draws_the_best_last_and_leaves_out_what_a_trial_lacks() -> None:
    dimensions = [charts.Dimension("lr", [0.1, None, 0.3]), charts.Dimension("loss", [3.0, 2.0, 1.0])]
    lines = elements(charts.parallel(dimensions, [0.0, 0.5, 1.0], ["a", "b", "c"]), "polyline")
    assert [line[0].text for line in lines] == ["a", "b", "c"]
    assert [len(line.get("points", "").split()) for line in lines] == [2, 1, 2]


def test_a_timeline_has_a_row_for_each_slot_and_counts_the_rows_that_it_leaves_out() -> None:
    spans = [charts.Span(f"slot {number}", number, number + 1.0, "succeeded") for number in range(50)]
    drawing = charts.timeline(spans, ("seconds", "slot"))
    checked(drawing, MOST)
    assert len({bar.get("y") for bar in elements(drawing, "rect")}) == 41  # 40 rows, and the legend
    assert any("10 more rows" in (text.text or "") for text in elements(drawing, "text"))


def test_a_timeline_of_many_bars_keeps_the_longest() -> None:
    spans = [charts.Span("slot", at, at + 0.5, "succeeded") for at in range(20_000)]
    spans.append(charts.Span("slot", 0, 900.0, "failed", "long"))
    drawing = charts.timeline(spans, ("seconds", "slot"))
    checked(drawing, 350_000)
    assert any(bar[0].text == "long" for bar in elements(drawing, "rect") if len(bar))


def test_short_bars_beside_each_other_are_joined_and_no_gap_appears() -> None:
    spans = [charts.Span("slot", at, at + 1.0, "succeeded") for at in range(20_000)]
    drawing = charts.timeline(spans, ("seconds", "slot"))
    checked(drawing, 20_000)
    [joined] = [each for each in elements(drawing, "rect") if len(each)]
    assert joined[0].text == "20000 generations: succeeded"
    assert [each.kind for each in charts.joined([*spans[:3], charts.Span("slot", 3, 9, "failed")], 2.0)] == [
        "failed", "succeeded",
    ]  # fmt: skip


def test_of_many_parallel_lines_the_best_and_a_sample_are_drawn() -> None:
    dimensions = [charts.Dimension("lr", list(range(3000))), charts.Dimension("loss", list(range(3000)))]
    strengths = [number / 2999 for number in range(3000)]
    names = [str(number) for number in range(3000)]
    lines = elements(charts.parallel(dimensions, strengths, names), "polyline")
    numbers = [int(line[0].text or "") for line in lines]
    assert numbers[-10:] == list(range(2990, 3000))
    assert len(numbers) <= charts.DOTS
    assert numbers[0] < 20
