"""Cut models in halves: tensors, never bytes."""

from cutlayer.split.cut import cut
from cutlayer.split.part import Part
from cutlayer.split.points import CutPoint, cut_points

__all__ = ["CutPoint", "Part", "cut", "cut_points"]
