"""Assembles pages: one file that needs no network, and the page of a server."""

import base64
import hashlib
from functools import cache
from importlib.resources import files

from msgspec import Struct

from sparktrain.views.report.encoding import encoded
from sparktrain.views.report.palette import as_css

SCRIPTS = (
    "dom.js",
    "charts.js",
    "plots.js",
    "tracks.js",
    "table.js",
    "panes.js",
    "enqueue.js",
    "sections.js",
    "compare.js",
    "lineage.js",
    "run_pane.js",
    "compared_runs.js",
    "runs.js",
    "live_log.js",
    "live.js",
    "app.js",
)
"""The parts of the application, in the order in which they are joined."""
STYLES = ("uplot.css", "app.css")
STATIC = {
    "uplot.js": "text/javascript; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "app.css": "text/css; charset=utf-8",
}
"""The files of a served page, below `static/`, and their types."""
SERVED_POLICY = (
    "default-src 'none'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; script-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""The Content-Security-Policy of a served page."""
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_HEAD = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    '<meta name="referrer" content="no-referrer"><meta name="color-scheme" content="light dark">\n'
)
_BODY = '<link rel="icon" href="data:,"><title>sparktrain</title>\n'
_MAIN = '</head><body><noscript>This page draws with JavaScript.</noscript><div id="app"></div>\n'


def report_html(document: Struct) -> bytes:
    """The whole page of a document, which needs no network and no other file. Pure but for the package's own files."""
    uplot = asset("uplot.js").decode()
    app = asset("app.js").decode()
    # Names, errors and logs are text that a program wrote. Whatever that text has, only the two scripts of this file
    # run, and no address outside of it is used.
    policy = (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {hash_of(uplot)} {hash_of(app)}; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = (
        _HEAD,
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
        _BODY,
        f"<style>{asset('app.css').decode()}</style>",
        _MAIN,
        f'<script type="application/json" id="document">{escaped(encoded(document).decode())}</script>\n',
        f"<script>{uplot}</script>\n<script>{app}</script>\n</body></html>\n",
    )
    return "".join(parts).encode()


def served_page() -> bytes:
    """The page of a server, with relative addresses; send it with `SERVED_POLICY`."""
    parts = (
        _HEAD,
        _BODY,
        '<link rel="stylesheet" href="static/app.css">',
        _MAIN,
        '<script src="static/uplot.js"></script>\n<script src="static/app.js"></script>\n</body></html>\n',
    )
    return "".join(parts).encode()


@cache
def asset(name: str) -> bytes:
    """The content of one of `STATIC`. Raises KeyError for another name."""
    if name not in STATIC:
        raise KeyError(name)
    folder = files("sparktrain.views.report") / "assets"
    joined = {"app.js": SCRIPTS, "app.css": STYLES}.get(name, (name,))
    texts = [(folder / part).read_text(encoding="utf-8") for part in joined]
    if name != "uplot.js":  # its first lines are its licence
        texts = [_compact(text) for text in texts]
    if name == "app.css":
        texts.insert(0, as_css())
    body = "\n".join(texts)
    return (f'"use strict";\n(() => {{\n{body}\n}})();' if name == "app.js" else body).encode()


def _compact(source: str) -> str:
    """Without comments on lines of their own and without indentation: a report has them in each copy.

    The parts have no text over several lines, which a test checks.
    """
    lines = (line.strip() for line in source.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def escaped(json_text: str) -> str:
    """JSON that can end no element of HTML and start none."""
    for sign, escape in _ESCAPES.items():
        json_text = json_text.replace(sign, escape)
    return json_text


def hash_of(script: str) -> str:
    """The source of a Content-Security-Policy that allows this inline script alone."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"
