"""The plots of a run as figures of plotly, from the same values as the drawings. Plotly is imported on use alone."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sparktrain.errors import SpecError
from sparktrain.notebook.axes import scale, thinned
from sparktrain.notebook.charts import POINTS_OF_CURVES, Dimension, colour_of, joined, spread
from sparktrain.notebook.plot_data import CurvesData, HistoryData, ParallelData, TimelineData
from sparktrain.notebook.svg import BEST, COLOURS, FAINT, clean

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_ACROSS = 1000.0
"""Parts of a timeline: what is shorter is joined with its neighbours."""
_LEGEND_TO = 30
"""Curves that the legend lists."""


def check_plotly() -> None:
    """Raise SpecError where plotly is not installed."""
    if find_spec("plotly") is None:
        raise SpecError(
            "figure() needs plotly, which is not installed: pip install 'sparktrain[plot]'; a notebook shows the plot "
            "itself without it"
        )


def history_figure(data: HistoryData) -> "Figure":
    """A point for each trial, and the line of the best so far."""
    import plotly.graph_objects as go

    shown = spread(data.values, {int(at) for at, _ in data.best})
    points = go.Scatter(
        x=[each.at for each in shown],
        y=[each.value for each in shown],
        text=[_text(each.note) for each in shown],
        hoverinfo="text",
        mode="markers",
        marker={"color": [each.colour for each in shown]},
        name="trials",
    )
    best = [*data.best, (len(data.values), data.best[-1][1])] if data.best else []
    line = go.Scatter(
        x=[at for at, _ in best],
        y=[value for _, value in best],
        line={"shape": "hv", "color": BEST},
        mode="lines",
        name="best so far",
    )
    log = scale([each.value for each in data.values], 0, 1).log
    return _laid_out(go.Figure([points, line]), "trials that have ended", _text(data.metric), log)


def curves_figure(data: CurvesData) -> "Figure":
    """A line for each trial, and of thousands a band."""
    import plotly.graph_objects as go

    figure = go.Figure()
    if data.band is not None:
        steps, low, high = list(data.band.steps), list(data.band.low), list(data.band.high)
        both = {"x": steps + steps[::-1], "y": high + low[::-1]}
        fill = {"fill": "toself", "fillcolor": "rgba(138, 138, 138, 0.25)", "line": {"width": 0}}
        figure.add_trace(go.Scatter(**both, **fill, name=data.band.name, hoverinfo="skip"))
        figure.add_trace(go.Scatter(x=steps, y=list(data.band.middle), line={"color": FAINT}, name="median"))
    most = max(8, POINTS_OF_CURVES // max(1, len(data.lines)))
    for number, line in enumerate(data.lines):
        points = thinned(line.points, most)
        style = {"color": COLOURS[number % len(COLOURS)], "width": 3 if line.strong else 1}
        figure.add_trace(
            go.Scatter(
                x=[step for step, _ in points],
                y=[value for _, value in points],
                mode="lines+markers" if len(points) == 1 else "lines",
                line=style,
                name=line.name,
                showlegend=len(data.lines) <= _LEGEND_TO,
            )
        )
    log = scale([value for line in data.lines for _, value in line.points], 0, 1).log
    return _laid_out(figure, "step", _text(data.metric), log)


def parallel_figure(data: ParallelData) -> "Figure":
    """An axis for each parameter and for the metric, on which a part can be chosen."""
    import plotly.graph_objects as go

    colours = {"color": list(data.strengths), "colorscale": [[0, "#c9d4e0"], [0.8, COLOURS[0]], [1, BEST]]}
    return go.Figure(go.Parcoords(dimensions=[_axis(each) for each in data.dimensions], line=colours))


def timeline_figure(data: TimelineData) -> "Figure":
    """A row for each slot, with a bar for each generation of a trial."""
    import plotly.graph_objects as go

    longest = joined(data.spans, max((each.end for each in data.spans), default=0.0) / _ACROSS)
    figure = go.Figure()
    for kind in dict.fromkeys(each.kind for each in longest):
        spans = [each for each in longest if each.kind == kind]
        figure.add_trace(
            go.Bar(
                orientation="h",
                y=[each.row for each in spans],
                base=[round(each.start, 4) for each in spans],
                x=[round(each.end - each.start, 4) for each in spans],
                text=[_text(each.note) for each in spans],
                textposition="none",
                hoverinfo="text",
                marker={"color": colour_of(kind)},
                name=kind,
            )
        )
    figure.update_layout(barmode="overlay")
    figure.update_yaxes(categoryorder="array", categoryarray=sorted({each.row for each in longest}, reverse=True))
    return _laid_out(figure, data.unit, "slot", False)


def importance_figure(shares: list[tuple[str, float]]) -> "Figure":
    """A bar for each parameter, the most important one at the top."""
    import plotly.graph_objects as go

    bars = go.Bar(
        orientation="h",
        y=[_text(name) for name, _ in shares],
        x=[share for _, share in shares],
        marker_color=COLOURS[0],
    )
    figure = _laid_out(go.Figure(bars), "importance", "", False)
    return figure.update_yaxes(autorange="reversed", type="category")


FIGURES: dict[str, Callable[..., "Figure"]] = {
    "history": history_figure,
    "curves": curves_figure,
    "parallel": parallel_figure,
    "timeline": timeline_figure,
    "importance": importance_figure,
}
"""By the names of `result.plot`."""


def _axis(of: Dimension) -> dict[str, Any]:
    """An axis of plotly, which has no logarithmic one: the logarithm is drawn, and its ticks are labelled."""
    import math

    if of.choices:
        places = list(range(len(of.choices)))
        return {
            "label": _text(of.name),
            "values": [math.nan if value is None else value for value in of.values],
            "tickvals": places,
            "ticktext": [_text(each) for each in of.choices],
            "range": [0, max(1, len(places) - 1)],
        }
    made = scale(of.values, 0, 1, log=of.log)
    values = [math.nan if value is None else math.log10(value) if made.log else value for value in of.values]
    axis: dict[str, Any] = {"label": _text(of.name), "values": values}
    if made.log:
        ticks = [made.value(place) for place, _ in made.ticks()]
        axis |= {"tickvals": [math.log10(value) for value in ticks], "ticktext": [f"{value:.3g}" for value in ticks]}
    return axis


def _laid_out(figure: "Figure", x: str, y: str, log: bool) -> "Figure":
    figure.update_layout(xaxis_title=x, yaxis_title=y, margin={"t": 30})
    return figure.update_yaxes(type="log") if log else figure


def _text(words: str) -> str:
    """What a program named, as plotly shows it: it takes tags in texts for its own."""
    return clean(words).replace("&", "&amp;").replace("<", "&lt;")
