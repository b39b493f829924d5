"""`cutlayer doctor`: is everything there, and if not, what to do."""

from __future__ import annotations

import typer

from cutlayer.commands import show
from cutlayer.commands.options import AsJson


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)


def doctor(as_json: AsJson = False) -> None:
    """Check this installation, and say what to do about each problem.

    Versions, compiled kernels and their instruction set, threads, extras,
    ports and disk. Nothing is changed. The exit code is 1 if something is
    wrong.

    \b
    Examples:
      cutlayer doctor
      cutlayer doctor --json
    """
    from cutlayer.tools.doctor import examine

    found = examine()
    wrong = [finding for finding in found if finding.verdict == "problem"]
    if as_json:
        show.print_json([finding.to_json() for finding in found])
    else:
        rows = [[f.what, f.found, "" if f.verdict == "ok" else f.verdict, f.advice] for f in found]
        show.console().print(show.table(None, ["", "found", "verdict", "what to do"], rows, text=4))
        show.say("Everything is in order." if not wrong else f"{len(wrong)} problems.")
    if wrong:
        raise typer.Exit(1)
