"""`cutlayer reproduce time`: the paper's section on time complexity."""

import typer

from cutlayer.commands.reproduce import options

HELP = """Time to encode and decode against d and k: SP, MS, RT (k draws, and one pass), k-means; exponents.

Times are measured one after another: leave the machine alone meanwhile.

\b
Examples:
  cutlayer reproduce time
  cutlayer reproduce time --scale laptop --threads 1
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    options.add(app, "time", "cutlayer.reproduce.measurements.speed", HELP)
