"""Every codec's work in plain PyTorch: the readable truth, on any device."""

from cutlayer.codecs.entropy.frequency_tables import tables as ems_tables
from cutlayer.codecs.entropy.least_squares import fit as ems_fit
from cutlayer.codecs.reference.dct import ems_forward, ems_inverse
from cutlayer.codecs.reference.ems import (
    ems_contexts,
    ems_decode,
    ems_encode,
    ems_energy,
    ems_equal_levels,
    ems_error,
    ems_levels,
    ems_pack,
    ems_rebuild,
    ems_signs,
    ems_starts,
    ems_strips,
    ems_sums,
    ems_tops,
    ems_unpack,
)
from cutlayer.codecs.reference.frame_buffer import allocate, check_values, checksum, empty, put_bytes, seal
from cutlayer.codecs.reference.km import km_decode, km_encode, km_histogram
from cutlayer.codecs.reference.ms import ms_decode, ms_encode
from cutlayer.codecs.reference.qu import qu_decode, qu_encode, ranges
from cutlayer.codecs.reference.sparse import sparse_decode, sparse_encode
from cutlayer.codecs.reference.topk import select_top

__all__ = [
    "allocate",
    "check_values",
    "checksum",
    "empty",
    "ems_contexts",
    "ems_decode",
    "ems_encode",
    "ems_energy",
    "ems_equal_levels",
    "ems_error",
    "ems_fit",
    "ems_forward",
    "ems_inverse",
    "ems_levels",
    "ems_pack",
    "ems_rebuild",
    "ems_signs",
    "ems_starts",
    "ems_strips",
    "ems_sums",
    "ems_tables",
    "ems_tops",
    "ems_unpack",
    "km_decode",
    "km_encode",
    "km_histogram",
    "ms_decode",
    "ms_encode",
    "put_bytes",
    "qu_decode",
    "qu_encode",
    "ranges",
    "seal",
    "select_top",
    "sparse_decode",
    "sparse_encode",
]
