"""`cutlayer reproduce bounds`: the three error bounds and Theorem 3."""

import typer

from cutlayer.commands.reproduce import options

HELP = """Theorem 3 and the error bounds of QU, SP and MS, beside measured errors.

Each bound is compared with the error on real smashed data.

\b
Examples:
  cutlayer reproduce bounds
  cutlayer reproduce bounds --scale laptop --root ~/data
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    options.add(app, "bounds", "cutlayer.reproduce.measurements.bounds", HELP)
