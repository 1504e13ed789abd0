"""A plot of a run: in a notebook a drawing, in text its main facts, and a figure of plotly when asked for one."""

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING

from sparktrain.boundary import users_call
from sparktrain.errors import SpecError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


class Plot:
    """One view of a run, as it was when the plot was made. A notebook shows it at the end of a cell."""

    def __init__(self, title: str, text: str, svg: str, make_figure: "Callable[[], Figure] | None") -> None:
        """Made by `result.plot`. Without `make_figure` there is nothing to draw, and `text` explains why."""
        self.title = title
        """The run, and the name of the view."""
        self.text = text
        """The main facts, or why there is nothing to draw."""
        self.svg = svg
        """The drawing as an SVG document, some 100 KB at most; empty where there is nothing to draw."""
        self._make_figure = make_figure

    @users_call
    def figure(self) -> "Figure":
        """The same as an interactive figure of plotly, to show, to change or to store.

        Raises SpecError when plotly is not installed, which the extra `plot` brings, or there is nothing to draw.
        """
        from sparktrain.notebook.figures import check_plotly

        if self._make_figure is None:
            raise SpecError(f"{self.title}: {self.text}")
        check_plotly()
        return self._make_figure()

    def __repr__(self) -> str:
        return f"{self.title}\n{self.text}"

    def _repr_html_(self) -> str:
        if not self.svg:
            return f"<div><p><b>{escape(self.title)}</b></p><p>{escape(self.text)}</p></div>"
        return f"<div><p><b>{escape(self.title)}</b></p>{self.svg}</div>"
