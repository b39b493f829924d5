"""Decode the payload of an `ems` frame: all its sections, each into its row."""

from cutlayer.codecs.base import Reader
from cutlayer.codecs.entropy.dct_section import read_any_section
from cutlayer.codecs.entropy.layout import TOKENS, ByteReader, malformed
from cutlayer.codecs.entropy.section_shape import section_shape
from cutlayer.codecs.entropy.tokens.section import read_tokens, token_shape
from cutlayer.codecs.tensors import Tensor


def read_sections(reader: Reader, out: Tensor, levels: int, rounding: str, values: int) -> None:
    """Decode all sections of a payload into their rows."""
    shape, offset = section_shape(reader.header.shape, out.shape[0]), reader.header.payload_offset
    said = (levels, rounding, values, reader.header.signed)
    if reader.kernels.ems_decode_sections(reader.data, offset, shape, *said, out):
        return
    sections = ByteReader(reader.payload)
    pending = []
    for _ in range(len(out)):  # all sections are checked before anything is written
        size = sections.varint(len(reader.payload))
        start = offset + sections.at
        body = ByteReader(sections.take(size))
        if rounding == "mean" and body.data[:1] == bytes([TOKENS]):
            tokens = token_shape(reader.header.shape, len(out))
            pending.append(read_tokens(body, reader.data, start, tokens, levels, values, reader.kernels))
            continue
        pending.append(read_any_section(body, reader.data, start, shape, *said, reader.kernels))
    if sections.at != len(reader.payload):
        raise malformed("bytes follow its end")
    for row, write_elements in zip(out, pending, strict=True):
        write_elements(row)
