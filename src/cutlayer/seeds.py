"""One seed for each use of randomness, derived and never shared.

A run has a single seed. What shuffles client 3 in epoch 7, or augments its 40th batch, is a hash of
that seed and of where in the run it is needed. Nothing is drawn from a running stream, so a party
that resumes at any step draws what it would have drawn without the stop.
"""

from __future__ import annotations

import hashlib


def derive(purpose: str, *place: int) -> int:
    """Hash a purpose and a place in the run (seed, client, epoch, step, ...) to 63 bits.

    The purpose keeps two uses at the same place, say shuffling and cropping, from being correlated.
    """
    text = "/".join([purpose, *(str(int(number)) for number in place)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
