"""What every piece of HTML for a notebook must keep."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

_OF_TEXT = {"div", "p", "b", "table", "tr", "th", "td", "pre"}
_OF_DRAWINGS = {"svg", "text", "title", "line", "polyline", "polygon", "circle", "rect"}


class Page(HTMLParser):
    """HTML, parsed: its tags, attributes and texts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def checked(html: str, most: int) -> Page:
    """The page, once it is found harmless: known tags, nothing that acts or is fetched, well formed."""
    page = Page(html)
    assert set(page.tags) <= _OF_TEXT | _OF_DRAWINGS
    for name, value in page.attributes:
        assert not name.startswith("on")
        assert name not in {"src", "href", "xlink:href", "class", "id"}
        assert "url(" not in value
        assert value != "nan"
        assert "background: #" not in value
    assert len(html.encode()) <= most
    for drawing in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        for each in ElementTree.fromstring(drawing).iter():  # raises where it is no XML
            places = [each.get(name) for name in ("x", "y", "cx", "cy", "x1", "x2", "y1", "y2", "width", "height")]
            assert all(-1 <= float(place) <= 2000 for place in places if place is not None)
    return page


def drawings(html: str) -> list[str]:
    """The SVGs of a page."""
    return re.findall(r"<svg.*?</svg>", html, re.DOTALL)
