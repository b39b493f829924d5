"""Train and run split neural networks with small traffic at the cut.

>>> import cutlayer, torch
>>> codec = cutlayer.codec("ms:ratio=0.99,bits=2")
>>> frame = codec.encode(torch.relu(torch.randn(64, 16, 32, 32)))
>>> y = cutlayer.decode(frame)
"""

from cutlayer.codecs import Codec, FrameInfo, codec, decode, inspect
from cutlayer.errors import CutlayerError
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
