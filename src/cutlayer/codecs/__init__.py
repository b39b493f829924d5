"""Tensor codecs: a tensor in, a self-describing frame of bytes out, and back.

One file a codec; `frame` and `decode` handle frames, `fields` and `registry` spec strings, `entropy/` is what
`ems` is made of, `kernels/` and `reference/` are the loops over elements, `rivals/` are methods of others. It
must not know models, training or the network.
"""

from cutlayer.codecs.base import Codec
from cutlayer.codecs.decode import FrameInfo, decode, decode_many, inspect
from cutlayer.codecs.registry import codec, codec_class, names, register

__all__ = [
    "Codec",
    "FrameInfo",
    "codec",
    "codec_class",
    "decode",
    "decode_many",
    "inspect",
    "names",
    "register",
]
