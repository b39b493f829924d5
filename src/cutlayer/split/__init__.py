"""Split models: cut a model at a named module, and the client's and server's halves of a training step.

It works on tensors. It must not know bytes, codecs (only the protocol `TensorCodec`), networks or training
runs.
"""

from cutlayer.split.cut import cut
from cutlayer.split.layer import Crossing, CutLayer
from cutlayer.split.part import Part
from cutlayer.split.points import CutPoint, CutTensor, cut_points
from cutlayer.split.tensors import relative_error

__all__ = [
    "Crossing",
    "CutLayer",
    "CutPoint",
    "CutTensor",
    "Part",
    "cut",
    "cut_points",
    "relative_error",
]
