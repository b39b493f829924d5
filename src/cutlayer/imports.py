"""Imports at run time: modules that only an extra installs, and a user's own code by its name."""

from __future__ import annotations

import importlib
import importlib.util
import operator
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from cutlayer.errors import CutlayerError, DataError

#: Packages whose modules have another name.
_PACKAGES = {"PIL": "pillow", "sklearn": "scikit-learn", "grpc": "grpcio", "google": "protobuf"}
#: Which extra installs a module.
_EXTRAS = {
    "torch": "train",
    "pydantic": "train",
    "PIL": "device",
    "cryptography": "network",
    "google": "network",
    "grpc": "network",
    "onnx": "export",
    "onnxruntime": "device",
}

T = TypeVar("T")

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def need(module: str, why: str, extra: str = "train") -> Any:
    """Import a module of an extra at its first use, so that codecs alone stay light."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        root = module.split(".")[0]
        raise DataError(
            f"{why} needs {_PACKAGES.get(root, root)}, which is not installed ({error}); "
            f"install it with: pip install 'cutlayer[{extra}]'"
        ) from error


def missing(error: ModuleNotFoundError, why: str) -> CutlayerError | None:
    """What to say of a module that an extra installs; None if no extra does."""
    root = (error.name or "").split(".")[0]
    if root not in _EXTRAS:
        return None
    return DataError(
        f"{why} needs {_PACKAGES.get(root, root)}, which is not installed; "
        f"install it with: pip install 'cutlayer[{_EXTRAS[root]}]'"
    )


def _look_here(top: str) -> None:
    """Let modules of the current directory be found, behind all others, if one of them is meant."""
    here = Path.cwd()
    known = top in sys.modules or any(Path(entry or ".").absolute() == here for entry in sys.path)
    lies_here = (here / f"{top}.py").is_file() or (here / top).is_dir()
    if lies_here and not known and importlib.util.find_spec(top) is None:
        sys.path.append(str(here))


def is_import_name(text: str) -> bool:
    """Tell whether a text has the form `package.module:attribute`."""
    return _NAME.fullmatch(text) is not None


def import_by_name(name: str, kind: type[CutlayerError]) -> Any:
    """Import what `package.module:attribute` names; what goes wrong is raised as an error of that kind.

    Importing runs the user's code: whatever it raises is the cause of the error. A module that is not
    installed may lie in the current directory. Callers give only names that this process's user has given or
    allowed.
    """
    module_name, _, attribute = name.partition(":")
    if not is_import_name(name):
        raise kind(f"'{name}' is not of the form package.module:name.")
    _look_here(module_name.partition(".")[0])
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise kind(
            f"no module '{error.name}' to import '{name}' from. Run in its folder, install it, or put its "
            "folder on PYTHONPATH."
        ) from error
    except Exception as error:
        raise kind(f"importing '{module_name}' failed: {type(error).__name__}: {error}") from error
    try:
        return operator.attrgetter(attribute)(module)
    except AttributeError as error:
        public = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        raise kind(
            f"'{module_name}' has no '{attribute}'. It has: {', '.join(public) or 'no functions'}."
        ) from error


@dataclass(frozen=True)
class AllowedNames(Generic[T]):
    """Which code of somebody's own may be imported by its name, and by whose word.

    A name can come from this process's own user (a configuration, a command line, the directory of a run) or
    from others (the offer of a server, the metadata of an exported half). Importing runs code, so names of
    others are imported only if the user allowed them. By default, what installed packages offer may be.
    """

    kind: ClassVar[str]
    """What is named, as `model`: also the flag that allows it, --allow-model."""
    form: ClassVar[str]
    """How a name is written, as package.module:factory."""
    error: ClassVar[type[CutlayerError]]

    names: frozenset[str] = frozenset()
    """As `form` says."""
    at_hand: Mapping[str, T] = field(default_factory=dict)
    """What need not be imported, by the name that somebody else gives it."""
    anything: bool = False
    """Whether any name may be imported: only where all names are this process's own user's."""

    @classmethod
    def of(cls, names: Iterable[str] = (), at_hand: Mapping[str, T] | None = None) -> Self:
        """These names and objects, once the names have the right form."""
        wrong = [name for name in names if not is_import_name(name)]
        if wrong:
            raise cls.error(f"{wrong[0]!r} cannot be allowed; write it as {cls.form}")
        return cls(frozenset(names), dict(at_hand or {}))

    @classmethod
    def group(cls) -> str:
        """Packages that a user installs offer theirs under this group of entry points."""
        return f"cutlayer.{cls.kind}s"

    def find(self, name: str) -> Any | None:
        """What has that name, imported if need be; None if nothing has it.

        Raise an error, before anything is imported, for code that was not allowed.
        """
        if name in self.at_hand:
            return self.at_hand[name]
        from importlib.metadata import entry_points  # slow to import, and seldom needed

        for point in entry_points(group=self.group()):
            if name in (point.name, point.value):
                try:
                    return point.load()
                except Exception as error:  # the package's code: anything can come
                    raise self.error(
                        f"the {self.kind} {name!r} ({point.value}) cannot be loaded: {error}"
                    ) from error
        if ":" not in name:
            return None
        if not is_import_name(name):
            raise self.error(f"{name!r} is not of the form {self.form}")
        if not (self.anything or name in self.names):
            raise self.error(
                f"the {self.kind} {name!r} is not built in, and nothing was imported: its name comes from "
                "somebody else, and importing it runs its code here. If you know and trust it, allow it with "
                f"--allow-{self.kind} {name}, or in Python with {self.kind}s={{{name!r}: ...}}; or install a "
                f"package that offers it as an entry point of {self.group()}"
            )
        return import_by_name(name, self.error)
