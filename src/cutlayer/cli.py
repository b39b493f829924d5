"""The `cutlayer` program: its list of commands, and how errors end it."""

import sys
from typing import Annotated

import typer

import cutlayer
from cutlayer.commands import doctor, new, show
from cutlayer.commands.codecs import bench, codecs, files
from cutlayer.commands.help import Program
from cutlayer.commands.network import (
    aggregate,
    certs,
    dashboard,
    health,
    hub,
    join,
    load,
    predict,
    serve,
    serve_inference,
)
from cutlayer.commands.reproduce import reproduce
from cutlayer.commands.runs import advise, compare, cuts, evaluate, export, partition, recipes, report, train
from cutlayer.commands.threads import sleep_while_waiting
from cutlayer.errors import CutlayerError
from cutlayer.imports import missing

app = Program(
    name="cutlayer",
    help="Train and run neural networks that are split between clients and a server.",
    epilog="Try: cutlayer train, cutlayer bench, cutlayer COMMAND --help",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"cutlayer {cutlayer.__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="show the version and exit")
    ] = False,
) -> None:
    pass


# In the order in which `cutlayer --help` lists them: from first steps to results.
for command in (
    new,
    doctor,
    codecs,
    bench,
    files,
    cuts,
    advise,
    partition,
    recipes,
    train,
    serve,
    join,
    aggregate,
    load,
    evaluate,
    predict,
    serve_inference,
    health,
    dashboard,
    compare,
    export,
    hub,
    report,
    reproduce,
    certs,
):
    command.register(app)


def main() -> None:
    """Run, and turn a user's mistakes into one line on stderr and exit code 1."""
    sleep_while_waiting()
    try:
        app()
    except CutlayerError as error:
        show.say(f"cutlayer: {error}", stderr=True)
        sys.exit(1)
    except ModuleNotFoundError as error:
        known = missing(error, "this command")
        if known is None:
            raise
        show.say(f"cutlayer: {known}", stderr=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has seen enough
        sys.stderr.close()
        sys.exit(1)


if __name__ == "__main__":
    main()
