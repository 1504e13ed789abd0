"""The plots of a run as figures of plotly, from the same values as the drawings. Plotly is imported on use alone."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sparktrain.errors import SpecError
from sparktrain.notebook.axes import scale, thinned
from sparktrain.notebook.charts import POINTS_OF_CURVES, Dimension, Share, joined, spread
from sparktrain.notebook.plot_data import CurvesData, HistoryData, ParallelData, TimelineData
from sparktrain.notebook.svg import FAINT, clean
from sparktrain.report.palette import BEST, SERIES, ramp_colour, status_colour
from sparktrain.report.views.value_axis import ValueAxis

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
        x=[value.at for value in shown],
        y=[value.value for value in shown],
        text=[_text(value.note) for value in shown],
        hoverinfo="text",
        mode="markers",
        marker={"color": [status_colour(value.status) for value in shown]},
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
    return _laid_out(go.Figure([points, line]), "trials that have ended", _text(data.metric), data.axis)


def curves_figure(data: CurvesData) -> "Figure":
    """A line for each trial, and of thousands a band."""
    import plotly.graph_objects as go

    figure = go.Figure()
    if data.band is not None:
        steps = list(data.band.steps)
        low = list(data.band.low)
        high = list(data.band.high)
        outline = {"x": steps + steps[::-1], "y": high + low[::-1]}
        fill = {"fill": "toself", "fillcolor": "rgba(138, 138, 138, 0.25)", "line": {"width": 0}}
        figure.add_trace(go.Scatter(**outline, **fill, name=data.band.name, hoverinfo="skip"))
        figure.add_trace(go.Scatter(x=steps, y=list(data.band.middle), line={"color": FAINT}, name="median"))
    point_limit = max(8, POINTS_OF_CURVES // max(1, len(data.lines)))
    for line in data.lines:
        points = thinned(line.points, point_limit)
        style = {"color": line.colour, "width": 3 if line.strong else 1}
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
    return _laid_out(figure, "step", _text(data.metric), data.axis)


def parallel_figure(data: ParallelData) -> "Figure":
    """An axis for each parameter and for the metric, on which a part can be chosen."""
    import plotly.graph_objects as go

    colours = {"color": list(data.strengths), "colorscale": [[0, ramp_colour(0.0)], [1, ramp_colour(1.0)]]}
    return go.Figure(go.Parcoords(dimensions=[_axis(dimension) for dimension in data.dimensions], line=colours))


def timeline_figure(data: TimelineData) -> "Figure":
    """A row for each slot, with a bar for each generation of a trial."""
    import plotly.graph_objects as go

    longest = joined(data.spans, max((span.end for span in data.spans), default=0.0) / _ACROSS)
    figure = go.Figure()
    for kind in dict.fromkeys(span.kind for span in longest):
        spans = [span for span in longest if span.kind == kind]
        figure.add_trace(
            go.Bar(
                orientation="h",
                y=[span.row for span in spans],
                base=[round(span.start, 4) for span in spans],
                x=[round(span.end - span.start, 4) for span in spans],
                text=[_text(span.note) for span in spans],
                textposition="none",
                hoverinfo="text",
                marker={"color": status_colour(kind)},
                name=kind,
            )
        )
    figure.update_layout(barmode="overlay")
    figure.update_yaxes(categoryorder="array", categoryarray=sorted({span.row for span in longest}, reverse=True))
    return _laid_out(figure, data.unit, "slot")


def importance_figure(shares: list[Share]) -> "Figure":
    """A bar for each parameter with its interval, the most important one at the top."""
    import plotly.graph_objects as go

    bars = go.Bar(
        orientation="h",
        y=[_text(share.name) for share in shares],
        x=[share.share for share in shares],
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [share.high - share.share for share in shares],
            "arrayminus": [share.share - share.low for share in shares],
        },
        marker_color=SERIES[0],
    )
    figure = _laid_out(go.Figure(bars), "importance", "")
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
            "ticktext": [_text(choice) for choice in of.choices],
            "range": [0, max(1, len(places) - 1)],
        }
    log = of.metric.log if of.metric is not None else of.log
    axis_scale = scale(of.values, 0, 1, log=log)
    values = [math.nan if value is None else math.log10(value) if axis_scale.log else value for value in of.values]
    axis: dict[str, Any] = {"label": _text(of.name), "values": values}
    if of.ticks:
        places_of = [math.log10(tick) if axis_scale.log else tick for tick in of.ticks]
        axis |= {"tickvals": places_of, "ticktext": [f"{tick:.6g}" for tick in of.ticks]}
    elif axis_scale.log:
        ticks = [axis_scale.value(place) for place, _ in axis_scale.ticks()]
        axis |= {"tickvals": [math.log10(value) for value in ticks], "ticktext": [f"{value:.3g}" for value in ticks]}
    return axis


def _laid_out(figure: "Figure", x: str, y: str, axis: ValueAxis | None = None) -> "Figure":
    """`axis` is that of the metric: a reader zooms out for the values beyond it."""
    import math

    figure.update_layout(xaxis_title=x, yaxis_title=y, margin={"t": 30})
    if axis is not None and axis.log:
        figure.update_yaxes(type="log")
    if axis is not None and (axis.below or axis.above):
        free = 0.05 * (axis.high - axis.low)
        ends = [axis.low - free, axis.high + free]
        if axis.log:
            ends = [math.log10(axis.low), math.log10(axis.high)]
        figure.update_yaxes(range=ends)
    return figure


def _text(words: str) -> str:
    """What a program named, as plotly shows it: it takes tags in texts for its own."""
    return clean(words).replace("&", "&amp;").replace("<", "&lt;")
