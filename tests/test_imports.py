"""Who may import whom: imports point up the table of rooms in docs/architecture.md, and nowhere else.

The table below is the only place of that rule. A room that is not in it fails the test.
"""

import ast
from pathlib import Path

import cutlayer

ROOT = Path(cutlayer.__file__).parent

# From the ground up. A room may import itself, the rooms in its row, and what stands behind `GROUND`.
GROUND = {"errors", "files", "imports", "interrupt", "pixels", "plain_json"}
GROUND |= {"seeding", "seeds", "units"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "units": set(),
    "interrupt": set(),
    "plain_json": set(),
    "files": {"errors"},
    "imports": {"errors"},
    "seeds": set(),
    "seeding": {"seeds"},
    "pixels": {"errors", "imports"},
    # Tensors to frames; models in parts; bytes; figures. None knows another, but for the last.
    "codecs": GROUND | {"_native"},
    "split": GROUND,
    "wire": GROUND,
    "analysis": GROUND | {"codecs", "split"},
    # A device without PyTorch.
    "device": GROUND | {"codecs", "wire"},
    # What a run is made of.
    "rates": GROUND | {"analysis", "codecs", "wire"},
    "tasks": GROUND | {"codecs"},
    "data": GROUND,
    "models": GROUND,
    "config": GROUND | {"codecs", "data", "rates", "tasks", "wire"},
    # What both ends derive alike.
    "protocol": GROUND | {"codecs", "config", "data", "models", "rates", "split", "tasks", "wire"},
    # The parties.
    "aggregation": GROUND | {"codecs", "config", "protocol", "split", "wire"},
    "client": GROUND
    | {"aggregation", "codecs", "config", "data", "models", "protocol", "rates", "split", "tasks", "wire"},
    "server": GROUND | {"aggregation", "codecs", "data", "protocol", "split", "tasks", "wire"},
    "ranks": GROUND | {"aggregation", "config", "protocol", "server", "split", "wire"},
    # Runs.
    "training": GROUND
    | {"_native", "aggregation", "analysis", "client", "codecs", "config", "data", "models", "protocol"}
    | {"ranks", "rates", "server", "split", "tasks", "wire"},
    "inference": GROUND
    | {"codecs", "config", "data", "device", "models", "protocol", "split", "tasks", "training", "wire"},
    "onnx_export": GROUND
    | {"codecs", "config", "data", "device", "inference", "models", "protocol", "rates", "split", "tasks"}
    | {"training"},
    # Loops of users' own.
    "remote": GROUND | {"codecs", "data", "protocol", "split", "training", "wire"},
    # What Python users call.
    "api": GROUND
    | {"aggregation", "client", "codecs", "config", "data", "models", "protocol", "server", "split", "tasks"}
    | {"training", "wire"},
    # What is made of runs.
    "tools": GROUND
    | {"_native", "codecs", "config", "data", "models", "protocol", "rates", "split", "tasks", "wire"},
    "reproduce": GROUND
    | {"analysis", "codecs", "config", "data", "models", "protocol", "split", "tasks", "tools", "training"}
    | {"wire"},
    "report": GROUND | {"config", "reproduce", "tasks", "training", "wire"},
    "dashboard": GROUND | {"training", "wire"},
    "integrations": GROUND
    | {"codecs", "config", "data", "inference", "models", "protocol", "report", "split", "tasks", "training"}
    | {"wire"},
}
# The program may import everything: nothing imports it.
PROGRAM = {"__init__", "__main__", "cli", "commands"}


def imported(path: Path) -> set[str]:
    """The rooms of cutlayer that a file imports, at its top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where they point"
            names = [node.module or ""]
            if node.module == "cutlayer":
                names = [f"cutlayer.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("cutlayer.")}
    return found - {"__version__"}


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def test_every_room_imports_only_what_it_may() -> None:
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        if room(path) not in PROGRAM:
            extra = imported(path) - ALLOWED[room(path)] - {room(path)}
            wrong += [f"{path.relative_to(ROOT)} imports cutlayer.{name}" for name in sorted(extra)]
    assert not wrong, "\n".join(wrong)


def test_every_room_is_in_the_table_and_every_row_is_a_room() -> None:
    rooms = {room(path) for path in ROOT.rglob("*.py")}
    assert rooms == set(ALLOWED) | PROGRAM


def test_the_table_points_one_way() -> None:
    order = list(ALLOWED)
    for name, allowed in ALLOWED.items():
        above = {other for other in allowed - {"_native"} if order.index(other) >= order.index(name)}
        assert not above, f"{name} may import {sorted(above)}, which stand at or above it"


def test_a_room_has_at_most_fifteen_files() -> None:
    folders = {path.parent for path in ROOT.rglob("*.py")}
    crowded = {
        str(folder.relative_to(ROOT)): count
        for folder in folders
        if (count := sum(path.name != "__init__.py" for path in folder.glob("*.py"))) > 15
    }
    assert not crowded


def test_nobody_imports_for_type_checkers_only() -> None:
    # Such an import hides a ring.
    ringed = [
        path
        for path in ROOT.rglob("*.py")
        if room(path) not in PROGRAM and "TYPE_CHECKING" in path.read_text()
    ]
    assert not ringed
