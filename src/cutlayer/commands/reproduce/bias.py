"""`cutlayer reproduce bias`: Theorem 1, Lemma 1, Theorem 2."""

import typer

from cutlayer.commands.reproduce import options

HELP = """Theorems 1 and 2, Lemma 1: the bias that compression adds to gradients.

Compares compressed with true gradients on real batches, with confidence
intervals. Theorem 1: does an unbiased codec give unbiased gradients? Lemma 1:
how much gradient error does a unit of compression error cause, by layer and
by cut? Theorem 2: how often is the inner product of the gradient error with
the full gradient non-negative? `cutlayer train --track-bias every=N` measures
the bias while a model trains.

\b
Examples:
  cutlayer reproduce bias
  cutlayer reproduce bias --scale laptop --root ~/data --jobs 2
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    options.add(app, "bias", "cutlayer.reproduce.measurements.bias", HELP)
