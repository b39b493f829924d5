"""What the runs of `transformers` say: validation loss against bits, and how far from no compression."""

from __future__ import annotations

from cutlayer.reproduce.experiment import Records, Request
from cutlayer.reproduce.results import Findings


def conclude(request: Request, records: Records) -> Findings:
    """See `Experiment`."""
    return Findings("Transformers under compression")
