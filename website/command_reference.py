"""The page on the commands, made from their own help. A command or option without help is an error."""

from pathlib import Path
from typing import Any

import typer.main

from cutlayer.cli import app


def commands() -> list[tuple[str, Any]]:
    """All commands of the program with their full names, groups before their members."""
    found = []

    def walk(name: str, command: Any) -> None:
        found.append((name, command))
        for short, member in getattr(command, "commands", {}).items():
            if not member.hidden:
                walk(f"{name} {short}", member)

    walk("cutlayer", typer.main.get_command(app))
    return found


def text(value: str) -> str:
    """Text of a help for a cell of a table."""
    return " ".join(value.split()).replace("|", "\\|").replace("<", "&lt;")


def metavar(parameter: Any) -> str:
    """What an option or argument takes, in a word."""
    kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    words: dict[object, str] = {int: "N", float: "X", Path: "PATH"}
    shown = parameter.metavar or words.get(kind, "TEXT")
    return str(shown).strip("[]")


def option(parameter: Any) -> str:
    """One row of the table of a command."""
    names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    if parameter.param_type_name == "argument":
        names = f"`{metavar(parameter)}`"
    elif not parameter.is_flag:
        names += f" `{metavar(parameter)}`"
    default = (
        ""
        if parameter.default in (None, False, [], ()) or callable(parameter.default)
        else f"`{parameter.default}`"
    )
    return f"| {names} | {default} | {text(parameter.help or '')} |"


def page() -> str:
    """The reference of the command line."""
    lines = ["# Commands", "", "What `cutlayer COMMAND --help` prints, on one page.", ""]
    missing = []
    for name, command in commands():
        if not (command.help or "").strip():
            missing.append(name)
        if name != "cutlayer":
            lines += ["", f"## {name}", ""]
        # Options of the program itself come with a context.
        context = command.make_context(name, [], resilient_parsing=True)
        lines += _paragraphs(command.help or "")
        rows = []
        for parameter in command.get_params(context):
            if parameter.name in ("help", "install_completion", "show_completion") or parameter.hidden:
                continue
            if not parameter.help:
                missing.append(f"{name} {parameter.name}")
            rows.append(option(parameter))
        if rows:
            lines += ["", "| option | default | meaning |", "|---|---|---|", *rows]
    if missing:
        raise SystemExit(f"commands or options without help: {', '.join(missing)}")
    return "\n".join(lines) + "\n"


def _paragraphs(help_text: str) -> list[str]:
    """A help as Markdown: lines that are indented, or that begin with the program's name, are commands."""
    lines: list[str] = []
    inside = False
    for line in help_text.replace("\b", "").splitlines():
        command = line.startswith("  ") or line.strip().startswith("cutlayer ")
        if command and not inside:
            lines += ["", "```sh"]
        if inside and not command:
            lines += ["```", ""]
        inside = command
        lines.append(line.strip())
    return [*lines, "```"] if inside else lines
