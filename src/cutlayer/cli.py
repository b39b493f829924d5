"""The `cutlayer` program: its list of commands, and how errors end it.

A command's module is imported when it is called: a device that predicts loads nothing of training.
"""

import sys
from functools import cache
from importlib import import_module
from typing import Annotated

import typer

import cutlayer
from cutlayer.commands import show
from cutlayer.commands.help import Program
from cutlayer.commands.threads import sleep_while_waiting
from cutlayer.errors import CutlayerError
from cutlayer.imports import missing

#: The module of each command, in the order in which `cutlayer --help` lists them: first steps to results.
COMMANDS = {
    "new": "new",
    "doctor": "doctor",
    "codecs": "codecs.codecs",
    "bench": "codecs.bench",
    "encode": "codecs.files",
    "decode": "codecs.files",
    "inspect": "codecs.files",
    "cuts": "runs.cuts",
    "advise": "runs.advise",
    "partition": "runs.partition",
    "recipes": "runs.recipes",
    "train": "runs.train",
    "serve": "network.serve",
    "join": "network.join",
    "aggregate": "network.aggregate",
    "load": "network.load",
    "eval": "runs.evaluate",
    "predict": "network.predict",
    "serve-inference": "network.serve_inference",
    "health": "network.health",
    "dashboard": "network.dashboard",
    "compare": "runs.compare",
    "export": "runs.export",
    "push": "network.hub",
    "pull": "network.hub",
    "report": "runs.report",
    "reproduce": "reproduce.reproduce",
    "certs": "network.certs",
}

app: Program
"""The program with all of its commands; made when it is asked for."""


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"cutlayer {cutlayer.__version__}")
        raise typer.Exit


def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="show the version and exit")
    ] = False,
) -> None:
    pass


@cache
def program(command: str | None = None) -> Program:
    """The program with one command, or with all of them if there is none of that name."""
    made = Program(
        name="cutlayer",
        help="Train and run neural networks that are split between clients and a server.",
        epilog="Try: cutlayer train, cutlayer bench, cutlayer COMMAND --help",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
    )
    made.callback()(_program)
    wanted = [COMMANDS[command]] if command in COMMANDS else dict.fromkeys(COMMANDS.values())
    for module in wanted:
        import_module(f"cutlayer.commands.{module}").register(made)
    return made


def __getattr__(name: str) -> Program:
    if name != "app":
        raise AttributeError(f"module 'cutlayer.cli' has no attribute {name!r}")
    return program()


def main() -> None:
    """Run, and turn a user's mistakes into one line on stderr and exit code 1."""
    sleep_while_waiting()
    try:
        program(sys.argv[1] if len(sys.argv) > 1 else None)()
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
