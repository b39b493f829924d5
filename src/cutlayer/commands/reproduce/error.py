"""`cutlayer reproduce error`: Fig. 2."""

import typer

from cutlayer.commands.reproduce import options

HELP = """Fig. 2: compression errors of QU, SP, MS and RT at equal rates.

Errors are measured on feature maps of trained models. The models are trained
first, once, and kept in OUT/models. Finished measurements are not repeated.

\b
Examples:
  # Digits, in seconds
  cutlayer reproduce error
  # CIFAR-10, Tiny-ImageNet-50 and samples of ImageNet
  cutlayer reproduce error --scale laptop --root ~/data
  # One more codec
  cutlayer reproduce error --codec km:bits=3
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    options.add(app, "error", "cutlayer.reproduce.measurements.error", HELP)
