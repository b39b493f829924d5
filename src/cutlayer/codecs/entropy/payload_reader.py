"""Decode the payload of an `ems` frame: all its sections, each into its row."""

from cutlayer.codecs.base import Reader
from cutlayer.codecs.entropy.dct_section import read_any_section
from cutlayer.codecs.entropy.layout import TOKENS, ByteReader, malformed
from cutlayer.codecs.entropy.plain.payload import Payload
from cutlayer.codecs.entropy.section_shape import section_shape
from cutlayer.codecs.entropy.tokens.section import read_tokens, token_shape
from cutlayer.codecs.tensors import Tensor


def payload_of(reader: Reader, out: Tensor, levels: int, rounding: str, values: int) -> Payload:
    """The payload of a frame whose header says this, to be decoded into `out`."""
    header = reader.header
    shape = section_shape(header.shape, out.shape[0])
    how = (levels, rounding, values, header.signed, out)
    return Payload(reader.data, header.payload_offset, shape, *how)


def read_sections(reader: Reader, out: Tensor, levels: int, rounding: str, values: int) -> None:
    """Decode all sections of a payload into their rows."""
    payload = payload_of(reader, out, levels, rounding, values)
    if reader.kernels.ems_decode_sections([payload]):
        return
    sections, kernels = ByteReader(reader.payload), reader.kernels
    pending = []
    for _ in range(len(out)):  # all sections are checked before anything is written
        size = sections.varint(len(reader.payload))
        start = payload.offset + sections.at
        body = ByteReader(sections.take(size))
        if payload.rounding == "mean" and body.data[:1] == bytes([TOKENS]):
            tokens = token_shape(reader.header.shape, len(out))
            pending.append(read_tokens(body, reader.data, start, tokens, levels, values, kernels))
            continue
        how = (payload.shape, levels, payload.rounding, values, payload.signed, kernels)
        pending.append(read_any_section(body, reader.data, start, *how))
    if sections.at != len(reader.payload):
        raise malformed("bytes follow its end")
    for row, write_elements in zip(out, pending, strict=True):
        write_elements(row)
