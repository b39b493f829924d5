"""The operators' files as the tests read them, and the program's own parser for the commands in them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from cutlayer.cli import app

yaml = pytest.importorskip("yaml", reason="PyYAML is part of the extra dev")

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BASE = DEPLOY / "kubernetes" / "base"
USER = 10001
PORT, METRICS = 50551, 9100
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and "certs" not in path.parts)


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text("utf-8")))


def objects() -> dict[tuple[str, str], Any]:
    """Everything that the base deploys, by kind and name."""
    found = [one for path in BASE.glob("*.yaml") for one in documents(path)]
    return {(one["kind"], one.get("metadata", {}).get("name", "")): one for one in found}


def program(words: list[str]) -> tuple[Any, list[str]]:
    """The command that these words call, and what is left for it."""
    command: Any = typer.main.get_command(app)
    while getattr(command, "commands", None):
        assert words, "a command is missing"
        command, words = command.commands[words[0]], words[1:]
    return command, words


def check(words: list[str]) -> dict[str, Any]:
    """Parse words as the program does: unknown flags and values that cannot be raise. What they mean."""
    command, rest = program(words)
    with command.make_context(command.name, list(rest)) as context:
        return dict(context.params)


def containers() -> Iterator[tuple[str, Any, Any]]:
    """Each container of Kubernetes, with its pod."""
    for (kind, name), one in objects().items():
        if kind in ("StatefulSet", "Deployment"):
            pod = one["spec"]["template"]["spec"]
            for container in pod["containers"]:
                yield f"{name}/{container['name']}", container, pod


CONTAINERS = {name: (container, pod) for name, container, pod in containers()}
COMPOSE = documents(DEPLOY / "compose.yaml")[0]
