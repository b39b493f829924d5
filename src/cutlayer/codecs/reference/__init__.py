"""The kernels in plain PyTorch, for any device.

They define what the compiled kernels must compute, bit for bit. Every function of `kernels.interface.Kernels`
is here, documented. Like all kernels they must not know codec objects or frame headers.
"""

from cutlayer.codecs.entropy.frequency_tables import frequency_tables as ems_frequency_tables
from cutlayer.codecs.entropy.least_squares import fit_weights as ems_fit_weights
from cutlayer.codecs.reference.dct import ems_dct_forward, ems_dct_inverse
from cutlayer.codecs.reference.ems import (
    ems_contexts,
    ems_dequantize,
    ems_energy,
    ems_gather_rows,
    ems_level_sums,
    ems_pack_bits,
    ems_pack_signs,
    ems_quantize,
    ems_quantize_evenly,
    ems_rans_decode,
    ems_rans_encode,
    ems_sample_offsets,
    ems_squared_error,
    ems_top_values,
    ems_unpack_bits,
)
from cutlayer.codecs.reference.frame_buffer import (
    advise,
    allocate,
    check_values,
    checksum,
    empty_like,
    get_floats,
    own,
    put_bytes,
    seal,
)
from cutlayer.codecs.reference.km import km_decode, km_encode, km_histogram
from cutlayer.codecs.reference.ms import ms_decode, ms_encode
from cutlayer.codecs.reference.qu import qu_decode, qu_encode, ranges
from cutlayer.codecs.reference.sections import ems_decode_sections, ems_encode_dct, ems_encode_sections
from cutlayer.codecs.reference.sparse import sparse_decode, sparse_encode
from cutlayer.codecs.reference.stochastic import (
    ems_quantize_stochastically,
    ems_stochastic_tops,
    random_words,
)
from cutlayer.codecs.reference.topk import select_top

__all__ = [
    "advise",
    "allocate",
    "check_values",
    "checksum",
    "empty_like",
    "ems_contexts",
    "ems_dct_forward",
    "ems_dct_inverse",
    "ems_decode_sections",
    "ems_dequantize",
    "ems_encode_dct",
    "ems_encode_sections",
    "ems_energy",
    "ems_fit_weights",
    "ems_frequency_tables",
    "ems_gather_rows",
    "ems_level_sums",
    "ems_pack_bits",
    "ems_pack_signs",
    "ems_quantize",
    "ems_quantize_evenly",
    "ems_quantize_stochastically",
    "ems_rans_decode",
    "ems_rans_encode",
    "ems_sample_offsets",
    "ems_squared_error",
    "ems_stochastic_tops",
    "ems_top_values",
    "ems_unpack_bits",
    "get_floats",
    "km_decode",
    "km_encode",
    "km_histogram",
    "ms_decode",
    "ms_encode",
    "own",
    "put_bytes",
    "qu_decode",
    "qu_encode",
    "random_words",
    "ranges",
    "seal",
    "select_top",
    "sparse_decode",
    "sparse_encode",
]
