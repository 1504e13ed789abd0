"""`result.plot`: the views of the report, one plot each."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from sparktrain.base import formatting
from sparktrain.base.boundary import users_call
from sparktrain.errors import MissingFileError
from sparktrain.views.notebook import charts, plot_data
from sparktrain.views.report.reading import read_document
from sparktrain.views.report.views.report_document import ReportDocument


@dataclass(frozen=True, repr=False)
class Plot:
    """One view of a run, as it was when the plot was made. A notebook shows it at the end of a cell."""

    title: str
    """The run, and the name of the view."""
    text: str
    """The main facts, or why there is nothing to draw."""
    svg: str
    """The drawing as an SVG document, some 100 KB at most; empty where there is nothing to draw."""

    def __repr__(self) -> str:
        return f"{self.title}\n{self.text}"

    def _repr_html_(self) -> str:
        if not self.svg:
            return f"<div><p><b>{escape(self.title)}</b></p><p>{escape(self.text)}</p></div>"
        return f"<div><p><b>{escape(self.title)}</b></p>{self.svg}</div>"


_LISTED = 8
_SILENT = "no trial has reported a metric: call ctx.report, or use ctx.keras_callbacks()"
_STARTED = "no trial has started yet"


class ResultPlots:
    """The plots of one run. Each call reads the run directory, once where the run has ended.

    Each method blocks on the store, and raises RunDirectoryError for files that are corrupt, OSError when the store
    fails, and MissingFileError for a result that has no directory. The plot itself is plain data.
    """

    def __init__(self, name: str, directory: str | None) -> None:
        self._name = name
        self._directory = directory
        self._document: ReportDocument | None = None

    def __repr__(self) -> str:
        return f"plots of {formatting.plain(self._name)}: history(), parallel(), curves(), timeline(), importance()"

    @users_call
    def history(self) -> Plot:
        """The metric of each trial in the order in which trials ended, and the best so far."""
        data = plot_data.history_data(self._read())
        if data is None:
            return self._plot("history", plot_data.NO_METRIC)
        best = f", best {formatting.number(data.best[-1][1])}" if data.best else ""
        text = f"{formatting.plain(data.metric)} of {formatting.count(len(data.values), 'trial')}{best}"
        svg = charts.history(data.values, data.best, ("trials that have ended", data.metric), data.axis)
        return self._plot("history", text, svg)

    @users_call
    def parallel(self) -> Plot:
        """A line for each trial through its parameters and the metric; the best trials stand out."""
        data = plot_data.parallel_data(self._read())
        if data is None:
            return self._plot("parallel", "parallel coordinates need trials with a metric that differ in a parameter")
        names = ", ".join(formatting.plain(dimension.name) for dimension in data.dimensions[-_LISTED:])
        hidden = f"; {data.left_out} trials are left out" if data.left_out else ""
        text = f"{formatting.count(len(data.names), 'trial')} by {names}{hidden}"
        return self._plot("parallel", text, charts.parallel(data.dimensions, data.strengths, data.names))

    @users_call
    def curves(self, metric: str | None = None) -> Plot:
        """What trials reported by step: up to 300 trials, of more the best 50 and a band of all.

        Args:
            metric: which of the reported metrics; by default that of the run, else the first one.

        Raises SpecError for a metric that no trial reported, beside the errors of the class.
        """
        data = plot_data.curves_data(self._read(), metric)
        if data is None:
            return self._plot("curves", _SILENT)
        text = f"{formatting.plain(data.metric)} of {formatting.count(data.total, 'trial')} by step"
        if data.band is not None:
            text += f": the best {len(data.lines)}, and 10 % to 90 % of all"
        svg = charts.curves(data.lines, data.band, ("step", data.metric), data.axis)
        return self._plot("curves", text, svg)

    @users_call
    def timeline(self) -> Plot:
        """What each slot did: a bar for each generation of a trial, in the colour of how that ended."""
        data = plot_data.timeline_data(self._read())
        if data is None:
            return self._plot("timeline", _STARTED)
        slots = formatting.count(len({span.row for span in data.spans}), "slot")
        text = f"{formatting.count(len(data.spans), 'generation')} of trials on {slots}"
        return self._plot("timeline", text, charts.timeline(data.spans, (data.unit, "slot")))

    @users_call
    def importance(self) -> Plot:
        """How much each parameter matters for the metric, with the interval of each share: the view of the report.

        By PED-ANOVA of Optuna, which the extra `search` brings, over 20 trials at least.
        """
        document = self._read()
        shares = plot_data.importance_data(document)
        if not shares:
            return self._plot("importance", document.views.importance.reason)
        view = document.views.importance
        title = f"importance for {document.headline.run.metric}, from {formatting.count(view.trials, 'trial')}"
        unsure = "" if view.sure else "; the intervals overlap: with more trials the order may change"
        return self._plot("importance", f"{_listed(shares)}{unsure}", charts.bars(shares, title))

    def _plot(self, kind: str, text: str, svg: str = "") -> Plot:
        """Without a drawing there is nothing to draw, and `text` explains why."""
        return Plot(f"{formatting.shorten(formatting.plain(self._name), 80)}: {kind}", text, svg)

    def _read(self) -> ReportDocument:
        if self._document is not None:
            return self._document
        if self._directory is None:
            raise MissingFileError("the result has no directory, so it has no plots: use sparktrain.load(directory)")
        document = read_document(self._directory)
        if document.headline.state == "ended":
            self._document = document
        return document


def _listed(shares: Sequence[charts.Share]) -> str:
    words = [
        f"{formatting.plain(share.name)} {share.share:.0%} ({share.low:.0%} to {share.high:.0%})"
        for share in shares[:_LISTED]
    ]
    return f"{', '.join(words)}{' ...' if len(shares) > _LISTED else ''}"
