"""The codecs of a run whose settings name none: all traffic is compressed, at no loss that was measured."""

from collections.abc import Mapping
from typing import Any

#: docs/results/README.md has the measurement.
DOWN, SYNC = "ems:bpe=3.0", "ems:bpe=4.0"


def all_compressed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with codecs for gradients and for what clients average, where no codec is named.

    Whoever names one compresses what is named and nothing else.
    """
    codec, train = settings.get("codec", {}), settings.get("train", {})
    if not (isinstance(codec, Mapping) and isinstance(train, Mapping)) or {"up", "down", "sync"} & set(codec):
        return dict(settings)
    named = {**codec, "down": DOWN}
    # Four bits are enough for gradients. Weights need more, and without error feedback gradients do, too.
    gradients = train.get("sync", "step") == "step" and train.get("mode") not in ("relay", "async")
    if gradients and train.get("aggregation", "server") == "server":
        named["sync"] = SYNC
    return {**settings, "codec": named}
