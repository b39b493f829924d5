"""One liar of five cannot move a robust mean beyond what honest clients sent."""

import pytest
import torch

from cutlayer.aggregation.at_server import RunningMean
from cutlayer.aggregation.robust import MeanRule
from cutlayer.config.schema import load
from cutlayer.errors import ConfigError
from cutlayer.protocol.plan import Place
from cutlayer.protocol.run_codecs import RunCodecs, codec_of
from cutlayer.wire.messages.types import Share, SyncUp

CODECS = RunCodecs(codec_of("none"), codec_of("none"), codec_of("none"), 0)
PLACE = Place(3, 0, 3, 0.1)


def share(vector: torch.Tensor) -> SyncUp:
    frame = CODECS.plain(vector)
    return SyncUp(3, frame, Share.GRADIENTS, len(frame))


def averaged(rule: MeanRule, vectors: list[torch.Tensor]) -> torch.Tensor:
    mean = RunningMean(CODECS, [1 / len(vectors)] * len(vectors), rule)
    for client, vector in enumerate(vectors):
        mean.add(client, share(vector))
    return CODECS.decode(mean.message(PLACE).frames[0])


def honest(n: int = 4) -> list[torch.Tensor]:
    return [torch.randn(50, generator=torch.Generator().manual_seed(i)) for i in range(n)]


@pytest.mark.parametrize("kind", ["median", "trimmed"])
@pytest.mark.parametrize("lie", [1e6, -1e6, 0.0])
@pytest.mark.parametrize("place", [0, 2, 4])
def test_one_liar_of_five_stays_between_the_honest(kind: str, lie: float, place: int) -> None:
    vectors = honest()
    low, high = torch.stack(vectors).min(0).values, torch.stack(vectors).max(0).values
    vectors.insert(place, torch.full((50,), lie))
    found = averaged(MeanRule(kind), vectors)  # type: ignore[arg-type]
    assert bool(((low <= found) & (found <= high)).all())
    # The plain mean does not: that is why there are rules.
    if lie:
        assert not bool(((low <= (plain := averaged(MeanRule(), vectors))) & (plain <= high)).all())


def test_norm_clipping_bounds_what_one_client_adds() -> None:
    vectors = [*honest(), torch.full((50,), 1e6)]
    found, without = averaged(MeanRule(clip_norm=10.0), vectors), sum(honest()) / 5
    assert float((found - without).norm()) == pytest.approx(10.0 / 5, rel=1e-4)
    # Who is within the limit is not touched.
    torch.testing.assert_close(averaged(MeanRule(clip_norm=100.0), honest()), averaged(MeanRule(), honest()))


def test_medians_and_trimmed_means_are_those_of_numpy() -> None:
    vectors = honest(7)
    expected = torch.stack(vectors).median(0).values
    torch.testing.assert_close(averaged(MeanRule("median"), vectors), expected)
    even = torch.stack(vectors[:6]).sort(0).values[2:4].mean(0)
    torch.testing.assert_close(averaged(MeanRule("median"), vectors[:6]), even)
    trimmed = torch.stack(vectors).sort(0).values[1:-1].mean(0)
    torch.testing.assert_close(averaged(MeanRule("trimmed", 0.2), vectors), trimmed)


def test_settings_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="an all-reduce only adds up"):
        load(None, ["robust.mean=median", "train.aggregation=allreduce"])
    with pytest.raises(ConfigError, match="one gradient"):
        load(None, ["robust.clip_gradient=1.0", "train.server_batching=fused"])
