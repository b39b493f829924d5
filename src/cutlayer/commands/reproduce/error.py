"""`cutlayer reproduce error`: Fig. 2."""

import typer

from cutlayer.commands.reproduce import options

HELP = """Fig. 2: compression errors of QU, SP, MS and RT at equal rates, on feature maps of trained models.

Models are trained first, once, and kept under OUT/models. Finished cells are never repeated.

\b
Examples:
  cutlayer reproduce error                                  seconds, on scikit-learn's digits
  cutlayer reproduce error --scale laptop --root ~/data     CIFAR-10, Tiny-ImageNet-50, ImageNet samples
  cutlayer reproduce error --codec km:bits=3                one more row
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    options.add(app, "error", "cutlayer.reproduce.measurements.error", HELP)
