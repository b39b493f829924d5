"""`cutlayer reproduce time`: the paper's section on time complexity."""

import typer

from cutlayer.commands.reproduce import options

HELP = """Time complexity: seconds to encode and decode against d and k.

Measures SP, MS, RT (k draws, and one pass) and k-means, and fits exponents.
Nothing else should run on the machine meanwhile.

\b
Examples:
  cutlayer reproduce time
  cutlayer reproduce time --scale laptop --threads 1
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    options.add(app, "time", "cutlayer.reproduce.measurements.speed", HELP)
