"""What both ends remember of each sample, as a setting: `aqsgd:change=SPEC` or `splitcom:threshold=T`."""

from __future__ import annotations

from dataclasses import dataclass

from cutlayer.codecs.registry import codec
from cutlayer.errors import SpecError

AQSGD, SPLITCOM = "aqsgd", "splitcom"


@dataclass(frozen=True)
class MemorySpec:
    """AQ-SGD (`change` is set) or SplitCom.

    >>> str(MemorySpec.parse("aqsgd:change=qu:bits=3"))
    'aqsgd:change=qu:bits=3'
    """

    change: str = ""
    """AQ-SGD: the codec of differences to a sample's last visit."""
    threshold: float = 0.98
    """SplitCom: a sample is sent if its cosine similarity to what is remembered is below this."""

    @staticmethod
    def parse(text: str) -> MemorySpec:
        """From text. All that follows `change=` is the spec of a codec, commas included."""
        name, _, rest = text.partition(":")
        key, _, value = (part.strip() for part in rest.partition("="))
        if name.strip() == AQSGD and key in ("", "change"):
            return MemorySpec(change=str(codec(value or "qu:bits=4")))
        if name.strip() == SPLITCOM and key in ("", "threshold"):
            try:
                threshold = float(value or "0.98")
            except ValueError:
                threshold = float("nan")
            if not -1 <= threshold <= 1:
                raise SpecError(f"a threshold is a cosine similarity, from -1 to 1, not {value!r}")
            return MemorySpec(threshold=threshold)
        raise SpecError(
            f"the memory {text!r} is not understood; use none, aqsgd:change=qu:bits=4 to send differences to "
            "a sample's last visit, or splitcom:threshold=0.98 to send only what has changed"
        )

    def __str__(self) -> str:
        return f"{AQSGD}:change={self.change}" if self.change else f"{SPLITCOM}:threshold={self.threshold:g}"
