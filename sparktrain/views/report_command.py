"""`sparktrain report DIR...`: a run, several beside each other, or a directory of runs, as one HTML file."""

from typing import Annotated

import typer

from sparktrain.cli import common
from sparktrain.cli.common import Output
from sparktrain.cli.flags import Debug, option, with_help
from sparktrain.cli.inspect_commands import AsJson
from sparktrain.config.panels import OUTPUT

REPORT_EXAMPLES = """\
A run in any store, as one file for a browser, which needs no network:
  sparktrain report hdfs:///runs/mnist --out mnist.html --open
All runs of a directory as one file: their table, their lineage, and what compares the newest of them:
  sparktrain report hdfs:///runs
What differs between three runs, and their curves over each other:
  sparktrain report runs/monday runs/tuesday runs/friday
"""


@with_help(REPORT_EXAMPLES)
def report(
    directories: Annotated[
        list[str], typer.Argument(metavar="DIR...", help="Run directories, or one of runs; paths or URLs.")
    ],
    out: Annotated[
        str | None, option(OUTPUT, "FILE", "The file (default: NAME-report.html in this folder).", "--out", "-o")
    ] = None,
    open_it: Annotated[bool, option(OUTPUT, "", "Open it in the browser of this machine.", "--open")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Write a run as one HTML file: results, curves, importance, timeline, cost. Several are compared, or listed."""

    def show(output: Output) -> int:
        import webbrowser

        from sparktrain.views.report.writing import write_report

        path = write_report(directories, out, subject="--out").absolute()
        if as_json:
            output.document({"path": str(path)})
        else:
            output.write(f"report: {path}\n".encode())
        if open_it and not webbrowser.open(path.as_uri()):
            common.print_line("no browser was found: open the file yourself")
        return 0

    return common.look(show, as_json=as_json, debug=debug)
