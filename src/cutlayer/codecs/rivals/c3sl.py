"""`c3sl`: C3-SL (2022), several samples in the place of one, superposed by circular convolution."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs import fields
from cutlayer.codecs.kernels.interface import Kernels
from cutlayer.codecs.rivals.base import PayloadReader, Rival, as_channels

_STREAM = 6  # of the random words from which keys are made
_PIECE = 1 << 18  # numbers of a key that are made at a time


Array = NDArray[Any]


@dataclass(frozen=True)
class CircularConvolution(Rival):
    """Add up groups of samples, each convolved with a random key, and recover each by correlation.

    Keys are a function of `keys`, which is in the header, and of the shape. Used for gradients, too, it gives
    the backward pass through encoder and decoder, because correlation is the adjoint of convolution.
    """

    name: ClassVar[str] = "c3sl"
    id: ClassVar[int] = 35
    advice: ClassVar[str] = "a rival (C3-SL): samples superposed; use it up and down"
    fixed_size: ClassVar[bool] = True

    merge: int = fields.integer(4, 1, 255, "samples that share the place of one")
    keys: int = fields.integer(0, 0, (1 << 32) - 1, "seed of the keys, the same in all frames", shown=False)

    def payload_bytes(self, shape: tuple[int, ...], signed: bool = False) -> int:
        """See `Codec.payload_bytes`."""
        n, c, s = as_channels(shape)
        return -(-n // self.merge) * c * s * 4

    def compress(self, x: Array, seed: int, kernels: Kernels) -> bytes:
        """See `Rival.compress`."""
        n, d = x.shape[0], x[0].size
        merge = min(n, self.merge)
        groups = -(-n // merge)
        padded = np.zeros((groups * merge, d))
        padded[:n] = x.reshape(n, d)
        spectra = np.fft.rfft(padded).reshape(groups, merge, -1)
        total = (spectra * _key_spectra(self.keys, merge, d, kernels)).sum(1)
        with np.errstate(over="ignore"):
            return np.fft.irfft(total, d).astype("<f4").tobytes()

    def expand(self, payload: PayloadReader, shape: tuple[int, int, int]) -> Array:
        """See `Rival.expand`."""
        n, d = shape[0], shape[1] * shape[2]
        merge = min(n, self.merge)  # no more keys than samples: memory stays in proportion to elements
        groups = -(-n // merge)
        summed = payload.floats(groups * d).reshape(groups, 1, d).astype(np.float64)
        spectra = np.fft.rfft(summed) * _key_spectra(self.keys, merge, d, payload.kernels).conj()
        with np.errstate(over="ignore"):
            found: Array = np.fft.irfft(spectra, d).reshape(-1, d)[:n].astype(np.float32)
        return found


@lru_cache(maxsize=2)
def _key_spectra(seed: int, count: int, d: int, kernels: Kernels) -> Array:
    """The spectra of `count` keys of d normal numbers of variance 1/d (Box-Muller from Philox words)."""
    keys = np.empty((count, d))
    for key in range(count):
        for at in range(0, d, _PIECE):
            n = min(_PIECE, d - at)
            words = kernels.random_words(seed, _STREAM, key, 2 * at, 2 * n)
            first, second = (words.reshape(n, 2).T + 0.5) / 2.0**32
            keys[key, at : at + n] = np.sqrt(-2 * np.log(first) / d) * np.cos(2 * np.pi * second)
    return np.asarray(np.fft.rfft(keys))
