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
    from cutlayer.api.callbacks import Event
    from cutlayer.api.network import join, serve
    from cutlayer.api.result import Result
    from cutlayer.api.runs import Run, load_run
    from cutlayer.api.train import train
    from cutlayer.codecs.base import Codec
    from cutlayer.codecs.decode import FrameInfo, decode, inspect
    from cutlayer.codecs.registry import codec, register
    from cutlayer.config.schema import Config
    from cutlayer.inference.remote_model import RemoteModel
    from cutlayer.remote.client import Remote, connect
    from cutlayer.remote.server import RemoteServer, RemoteStep
    from cutlayer.split import CutLayer, cut, cut_points

__version__ = "0.1.0"
__all__ = [
    "Codec",
    "Config",
    "CutLayer",
    "CutlayerError",
    "Event",
    "FrameInfo",
    "Remote",
    "RemoteModel",
    "RemoteServer",
    "RemoteStep",
    "Result",
    "Run",
    "codec",
    "connect",
    "cut",
    "cut_points",
    "decode",
    "inspect",
    "join",
    "load_run",
    "register",
    "serve",
    "train",
]

# Where each public name is defined; the names of the block above.
_MODULES = {
    "Codec": "cutlayer.codecs",
    "Config": "cutlayer.config.schema",
    "CutLayer": "cutlayer.split",
    "Event": "cutlayer.api.callbacks",
    "FrameInfo": "cutlayer.codecs",
    "Remote": "cutlayer.remote.client",
    "RemoteModel": "cutlayer.inference.remote_model",
    "RemoteServer": "cutlayer.remote.server",
    "RemoteStep": "cutlayer.remote.server",
    "Result": "cutlayer.api.result",
    "Run": "cutlayer.api.runs",
    "codec": "cutlayer.codecs",
    "connect": "cutlayer.remote.client",
    "cut": "cutlayer.split",
    "cut_points": "cutlayer.split",
    "decode": "cutlayer.codecs",
    "inspect": "cutlayer.codecs",
    "join": "cutlayer.api.network",
    "load_run": "cutlayer.api.runs",
    "register": "cutlayer.codecs",
    "serve": "cutlayer.api.network",
    "train": "cutlayer.api.train",
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
