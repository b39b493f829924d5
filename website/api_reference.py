"""The page on the public names, made from their docstrings. A public name without one is an error."""

import inspect
from typing import Any

import cutlayer

GROUPS = {
    "Train": ["train", "Result", "Event", "Config", "load_run", "Run"],
    "Between machines": ["serve", "join", "connect", "Remote", "RemoteServer", "RemoteStep", "RemoteModel"],
    "Codecs": ["codec", "decode", "inspect", "FrameInfo", "Codec", "register"],
    "Models in parts": ["cut", "cut_points", "CutLayer"],
    "Errors": ["CutlayerError"],
}


def undocumented(names: dict[str, Any]) -> list[str]:
    """Public names, and public members that their classes define themselves, that have no docstring."""
    missing = []
    for name, value in names.items():
        if not (value.__doc__ or "").strip():
            missing.append(name)
        for member, defined in vars(value).items() if inspect.isclass(value) else ():
            called = inspect.unwrap(getattr(defined, "__func__", getattr(defined, "fget", None) or defined))
            is_method = inspect.isfunction(called) and member not in getattr(
                value, "__dataclass_fields__", ()
            )
            if is_method and not member.startswith("_") and not called.__doc__:
                missing.append(f"{name}.{member}")
    return missing


def page() -> str:
    """One heading and one mkdocstrings directive a name."""
    names = {name: getattr(cutlayer, name) for name in cutlayer.__all__}
    if missing := undocumented(names):
        raise SystemExit(f"public names without a docstring: {', '.join(missing)}")
    grouped = {name for group in GROUPS.values() for name in group}
    if different := grouped ^ set(names):
        raise SystemExit(f"website/api_reference.py and cutlayer.__all__ differ: {', '.join(different)}")
    lines = [
        "# Python",
        "",
        "Every name that `import cutlayer` offers. PyTorch and gRPC are imported when a name that needs them",
        "is used for the first time. [The Python interface](../how-to/python.md) shows their use.",
    ]
    for title, group in GROUPS.items():
        lines += ["", f"## {title}"]
        for name in group:
            value = names[name]
            lines += ["", f"::: {value.__module__}.{value.__qualname__}", "    options:"]
            lines += [f"      heading: cutlayer.{name}", "      heading_level: 3"]
    return "\n".join(lines) + "\n"
