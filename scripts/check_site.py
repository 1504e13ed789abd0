"""Fails when a page of the built site fetches anything from another host: `check_site.py site`."""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

FETCHED = {
    "audio": "src", "embed": "src", "iframe": "src", "img": "src", "link": "href", "object": "data",
    "script": "src", "source": "src", "track": "src", "use": "href", "video": "src",
}  # fmt: skip
"""Tags that have a browser fetch something, and the attribute with the address; what `a` links to is not fetched."""
NOT_FETCHED = {"canonical", "next", "prev", "alternate"}  # relations of <link> that only name a page
_EXTERNAL = re.compile(r"(?:https?:)?//", re.IGNORECASE)
_IN_STYLE = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])((?:https?:)?//[^'\")\s]+)", re.IGNORECASE)


class Fetches(HTMLParser):
    """What a page has a browser fetch from other hosts, in `found`."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See base class."""
        values = {name: value or "" for name, value in attrs}
        self._in_style = tag == "style"
        self.found += _IN_STYLE.findall(values.get("style", ""))
        if "mermaid" in values.get("class", "").split():
            self.found.append("mermaid, for a diagram")  # the theme's script loads it from a CDN
        if tag == "link" and set(values.get("rel", "").split()) <= NOT_FETCHED:
            return
        if _EXTERNAL.match(source := values.get(FETCHED.get(tag, ""), "")):
            self.found.append(source)

    def handle_data(self, data: str) -> None:
        """See base class."""
        if self._in_style:
            self.found += _IN_STYLE.findall(data)


def fetched(page: str) -> list[str]:
    """Addresses on other hosts that the HTML `page` fetches."""
    parser = Fetches()
    parser.feed(page)
    return parser.found


def problems(site: Path) -> Iterator[str]:
    """One line for each address on another host that a page or a style sheet below `site` fetches."""
    for path in sorted(site.rglob("*")):
        if path.suffix == ".html":
            found = fetched(path.read_text("utf-8"))
        elif path.suffix == ".css":
            found = _IN_STYLE.findall(path.read_text("utf-8"))
        else:
            continue
        yield from (f"{path.relative_to(site)} fetches {address}" for address in found)


def main() -> int:
    """The exit code: 1 when a page fetches something from another host, or the site has no pages."""
    site = Path(sys.argv[1])
    if not any(site.rglob("*.html")):
        print(f"{site} has no pages: build it with `make docs`", file=sys.stderr)
        return 1
    found = list(problems(site))
    for line in found:
        print(f"{line}: the site must work without a network", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
