"""A plot of a run: in a notebook a drawing, and in text its main facts."""

from dataclasses import dataclass
from html import escape


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
