"""The result of a grid of runs: findings with their provenance, written to a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cutlayer.reproduce.convergence import accuracy, traffic
from cutlayer.reproduce.convergence.grid import LINK, TASKS
from cutlayer.reproduce.results import Findings, Result
from cutlayer.training.provenance import provenance

#: What the same runs are evaluated for.
FINDINGS: dict[str, Callable[[Path], Findings]] = {
    "convergence": accuracy.findings,
    "traffic": traffic.findings,
}


def conclude(name: str, scale: str, out: Path) -> Result:
    """Write `<out>/<name>/`. The runs may come from several commands; all are named."""
    found = FINDINGS[name](out)
    causes = [_read(path) for path in sorted((out / "convergence" / "runs").glob("*/provenance.json"))]
    commands = dict.fromkeys(str(cause["command"]) for cause in causes)
    result = Result(
        name=name,
        scale=scale,
        title=found.title,
        claims=found.claims,
        tables=found.tables,
        plots=found.plots,
        commands=[_typed(command) for command in commands],
        # The machine and the versions that trained, not those that drew the tables.
        provenance=causes[0] if causes else provenance(0),
        settings={
            "link": LINK,
            "tasks": {task.name: {"recipe": task.recipe, **task.overrides} for task in TASKS[scale]},
        },
    )
    result.write(out / name)
    return result


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _typed(command: str) -> str:
    """The command as a user types it, however the program was started; or that it was a script."""
    program, _, rest = command.partition(" ")
    return command if program == "a" else f"cutlayer {rest}"
