"""The command line: training (`sweep`, `run`, `resume`), and inspecting runs (`status`, `logs`, `export` ...).

A command that only looks at a run should answer at once, so that nothing here imports more than the command needs:
`command_table` names the module of each command, and imports it when it is called.
"""

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv`, by default that of this process, and return its exit code (`EXIT_CODES`). Blocks."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments == ["--version"]:
        from sparktrain import __version__

        print(f"sparktrain {__version__}")
        return 0
    from sparktrain.cli.command_table import run

    return run(arguments)
