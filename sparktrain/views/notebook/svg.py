"""Elements of SVG as text: escaped, with inline styles alone, in the colour of the page. Pure."""

from collections.abc import Iterable, Sequence
from html import escape

from sparktrain.base import formatting
from sparktrain.views.report.palette import status_colour

FAINT = status_colour("queued")
"""What stands back, such as a band or a median."""
INK = "currentColor"
MOST_GROWTH = 1.8
"""A drawing is as wide as its cell, up to this multiple of its own width: its letters grow with it."""
CHARACTER = 6.2
"""About how wide a character is, in pixels."""
_LONGEST_TEXT = 200

Point = tuple[float, float]


def number(value: float) -> str:
    """A coordinate: to a tenth of a pixel, without needless zeros."""
    return f"{value:.1f}".removesuffix(".0")


def attribute(name: str, value: str | float) -> str:
    """` name="value"`, escaped."""
    text = number(value) if isinstance(value, float | int) else value
    return f' {name}="{escape(text)}"'


def element(tag: str, content: str = "", /, **attributes: str | float) -> str:
    """An element; `content` is markup already. `_` in a name stands for `-`."""
    listed = "".join(attribute(name.replace("_", "-"), value) for name, value in attributes.items())
    return f"<{tag}{listed}>{content}</{tag}>" if content else f"<{tag}{listed}/>"


def clean(text: str, width: int = _LONGEST_TEXT) -> str:
    """What a program named, on one line, without control characters, and cut to `width` places. Not escaped yet."""
    return formatting.shorten(formatting.plain(str(text)).encode("utf-8", "replace").decode(), width)


def text(at: Point, words: str, anchor: str = "start", colour: str = INK, opacity: float = 0.85) -> str:
    """Words at a place."""
    style = {"text_anchor": anchor, "fill": colour, "fill_opacity": f"{opacity:g}"}
    return element("text", escape(clean(words)), x=at[0], y=at[1], **style)


def hint(words: str) -> str:
    """What appears where the pointer rests on an element."""
    return element("title", escape(clean(words)))


def line(start: Point, end: Point, opacity: float = 0.5, colour: str = INK) -> str:
    """A straight line."""
    style = {"stroke": colour, "stroke_opacity": f"{opacity:g}"}
    return element("line", x1=start[0], y1=start[1], x2=end[0], y2=end[1], **style)


def path(points: Sequence[Point], colour: str, width: float = 1.5, opacity: float = 1.0, words: str = "") -> str:
    """A line through all points."""
    listed = " ".join(f"{number(x)},{number(y)}" for x, y in points)
    style = {"stroke": colour, "stroke_width": number(width), "stroke_opacity": f"{opacity:g}", "fill": "none"}
    return element("polyline", hint(words) if words else "", points=listed, **style)


def area(upper: Sequence[Point], lower: Sequence[Point], colour: str, words: str = "") -> str:
    """The area between two lines from left to right."""
    listed = " ".join(f"{number(x)},{number(y)}" for x, y in [*upper, *reversed(lower)])
    return element("polygon", hint(words) if words else "", points=listed, fill=colour, fill_opacity="0.2")


def dot(at: Point, colour: str, radius: float = 3.0, words: str = "", opacity: float = 0.9) -> str:
    """A filled circle."""
    style = {"fill": colour, "fill_opacity": f"{opacity:g}"}
    return element("circle", hint(words) if words else "", cx=at[0], cy=at[1], r=radius, **style)


def triangle(tip: Point, down: float, colour: str, words: str) -> str:
    """A mark at an edge; `down` is how far its base is below its tip, negative for one that points down."""
    corners = [tip, (tip[0] + 5, tip[1] + down), (tip[0] - 5, tip[1] + down)]
    listed = " ".join(f"{number(x)},{number(y)}" for x, y in corners)
    return element("polygon", hint(words), points=listed, fill=colour)


def bar(corner: Point, size: Point, colour: str, words: str = "", opacity: float = 0.9) -> str:
    """A filled rectangle; `corner` is the upper left one."""
    place = {"x": corner[0], "y": corner[1], "width": max(0.5, size[0]), "height": max(0.5, size[1])}
    return element("rect", hint(words) if words else "", **place, fill=colour, fill_opacity=f"{opacity:g}")


def drawing(width: float, height: float, parts: Iterable[str], label: str) -> str:
    """The whole; `label` is read out to people who do not see it."""
    # Inline styles alone: nothing that a notebook shows needs a script or another host.
    listed = {
        "xmlns": "http://www.w3.org/2000/svg",
        "viewBox": f"0 0 {number(width)} {number(height)}",
        "role": "img",
        "aria_label": clean(label),
        "style": f"width: 100%; max-width: {number(MOST_GROWTH * width)}px; height: auto; font: 11px sans-serif; "
        "background: none; display: block",
    }
    return element("svg", "".join(parts), **listed)
