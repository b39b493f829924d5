"""Tensor codecs: a tensor in, a self-describing frame of bytes out, and back."""

from cutlayer.codecs.base import Codec
from cutlayer.codecs.decode import FrameInfo, decode, inspect
from cutlayer.codecs.registry import codec, codec_class, names

__all__ = ["Codec", "FrameInfo", "codec", "codec_class", "decode", "inspect", "names"]
