import torch

import cutlayer
from cutlayer.reproduce.measurements.speed import draw_one_by_one


def test_k_draws_one_by_one_choose_as_the_codec_does() -> None:
    """How many of the drawn are top values: the same distribution, by its mean over many draws."""
    x = torch.rand(60, generator=torch.Generator().manual_seed(0)) + 0.1
    k, draws = 12, 1500
    top = set(torch.topk(x, k).indices.tolist())
    generator = torch.Generator().manual_seed(1)
    one_by_one, codec = [], cutlayer.codec("rt:ratio=0.8,alpha=0.3,scope=tensor")
    for _ in range(draws):
        chosen = draw_one_by_one(x, k, 0.3, generator).tolist()
        assert len(set(chosen)) == k
        one_by_one.append(len(top & set(chosen)))
    ours = []
    for seed in range(draws):
        kept = cutlayer.decode(codec.encode(x, seed=seed)).nonzero().flatten().tolist()
        ours.append(len(top & set(kept)))
    first, second = (torch.tensor(hits, dtype=torch.float64) for hits in (one_by_one, ours))
    error = ((first.var() + second.var()) / draws).sqrt()
    assert abs(first.mean() - second.mean()) < 4 * error
    assert 0.8 < first.var() / second.var() < 1.25
