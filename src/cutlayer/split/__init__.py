"""Cut models in halves: tensors, never bytes."""

from cutlayer.split.cut import cut
from cutlayer.split.layer import Crossing, CutLayer, relative_error
from cutlayer.split.part import Part
from cutlayer.split.points import CutPoint, cut_points

__all__ = ["Crossing", "CutLayer", "CutPoint", "Part", "cut", "cut_points", "relative_error"]
