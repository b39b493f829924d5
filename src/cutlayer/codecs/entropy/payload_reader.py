"""Decode the payload of an `ems` frame: all its sections, each into its row."""

from cutlayer.codecs.base import Reader
from cutlayer.codecs.entropy.dct_section import read_any_section
from cutlayer.codecs.entropy.layout import TOKENS, ByteReader, malformed
from cutlayer.codecs.entropy.payload import Payload
from cutlayer.codecs.entropy.tokens.section import read_tokens, token_shape


def read_sections(reader: Reader, payload: Payload) -> None:
    """Decode all sections of a payload into their rows."""
    if reader.kernels.ems_decode_sections([payload]):
        return
    sections, out, kernels = ByteReader(reader.payload), payload.out, reader.kernels
    levels, values = payload.levels, payload.values
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
