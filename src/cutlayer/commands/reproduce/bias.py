"""`cutlayer reproduce bias`: Theorem 1, Lemma 1, Theorem 2."""

import typer

from cutlayer.commands.reproduce import options

HELP = """Gradient bias: compressed gradients against true ones, on real batches, with confidence intervals.

Theorem 1: does an unbiased codec give unbiased gradients? Lemma 1: how much gradient error does a unit of
compression error make, layer by layer and cut by cut? Theorem 2: how often is the inner product of the
gradient error with the full gradient non-negative? While training, see `cutlayer train --track-bias every=N`.

\b
Examples:
  cutlayer reproduce bias
  cutlayer reproduce bias --scale laptop --root ~/data --jobs 2
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    options.add(app, "bias", "cutlayer.reproduce.measurements.bias", HELP)
