"""`cutlayer reproduce transformers`: a GPT and a ViT under compression, beyond the paper."""

import typer

from cutlayer.commands.reproduce import options

HELP = """A GPT on text and a ViT on images under compression, beyond the paper.

Validation loss against bits an element of the smashed data, ten clients, cut
behind the first and the second block. Each row is a training run in
OUT/transformers/runs; one that was stopped goes on where it was.

\b
Examples:
  # Tiny models, in seconds
  cutlayer reproduce transformers
  # tinyshakespeare/input.txt and cifar10/ under the root
  cutlayer reproduce transformers --scale laptop --root ~/data
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    options.add(app, "transformers", "cutlayer.reproduce.transformers.study", HELP)
