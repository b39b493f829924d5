"""`cutlayer reproduce`: the paper's results, one command each."""

import typer

from cutlayer.commands.help import Program
from cutlayer.commands.reproduce import bias as reproduce_bias
from cutlayer.commands.reproduce import bounds as reproduce_bounds
from cutlayer.commands.reproduce import convergence as reproduce_convergence
from cutlayer.commands.reproduce import error as reproduce_error
from cutlayer.commands.reproduce import time as reproduce_time
from cutlayer.commands.reproduce import transformers as reproduce_transformers

# One module an experiment, each with `register(app)`, in the order of the paper; then what is beyond it.
EXPERIMENTS = (
    reproduce_error,
    reproduce_bounds,
    reproduce_time,
    reproduce_bias,
    reproduce_convergence,
    reproduce_transformers,
)


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = Program(
        name="reproduce",
        help="Reproduce the paper's figures, tables and theorems.",
        epilog="Try: cutlayer reproduce error --scale smoke",
        no_args_is_help=True,
    )
    for experiment in EXPERIMENTS:
        experiment.register(group)
    app.add_typer(group)
