"""Train and run split neural networks with small traffic at the cut.

>>> import cutlayer, torch
>>> codec = cutlayer.codec("ms:ratio=0.99,bits=2")
>>> frame = codec.encode(torch.relu(torch.randn(64, 16, 32, 32)))
>>> y = cutlayer.decode(frame)

Public names are imported at their first use (PEP 562), so that `import cutlayer` and the command line start
without PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from cutlayer.errors import CutlayerError

if TYPE_CHECKING:
    from cutlayer.codecs.base import Codec
    from cutlayer.codecs.decode import FrameInfo, decode, inspect
    from cutlayer.codecs.registry import codec
    from cutlayer.split import CutLayer, cut, cut_points

__version__ = "0.1.0"
__all__ = [
    "Codec",
    "CutLayer",
    "CutlayerError",
    "FrameInfo",
    "codec",
    "cut",
    "cut_points",
    "decode",
    "inspect",
]

# Where each public name is defined; the names of the block above.
_MODULES = {
    "Codec": "cutlayer.codecs",
    "CutLayer": "cutlayer.split",
    "FrameInfo": "cutlayer.codecs",
    "codec": "cutlayer.codecs",
    "cut": "cutlayer.split",
    "cut_points": "cutlayer.split",
    "decode": "cutlayer.codecs",
    "inspect": "cutlayer.codecs",
}

# Type checkers read the imports above. If they saw this function, they would accept any name.
if not TYPE_CHECKING:

    def __getattr__(name):
        """Import a public name, and keep it for the next time."""
        if name not in _MODULES:
            raise AttributeError(f"module 'cutlayer' has no attribute {name!r}")
        try:
            value = getattr(import_module(_MODULES[name]), name)
        except ModuleNotFoundError as error:
            from cutlayer.imports import missing

            raise missing(error, f"cutlayer.{name}") or error from error
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
