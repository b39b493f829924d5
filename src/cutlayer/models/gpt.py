"""A small GPT: token and position embeddings, blocks of causal attention and MLP, and next-token logits."""

import math
from collections import OrderedDict

import torch
from torch import nn

from cutlayer.errors import ModelError
from cutlayer.models.transformer import Block, initialise_transformer


class Embedding(nn.Module):
    """Tokens [N, T] to vectors [N, T, width]: what a token is, and where it stands."""

    def __init__(self, vocabulary: int, context: int, width: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.zeros(context, width))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The sum of both."""
        found: torch.Tensor = self.token(tokens) + self.position[: tokens.shape[1]]
        return found


def gpt(
    *, classes: int, width: int, context: int, vocabulary: int = 0, blocks: int = 4, heads: int = 4
) -> nn.Sequential:
    """`embedding`, `block1` to `blockN`, `norm` and `fc`, in a row: it is cut behind any of them."""
    if width % heads:
        raise ModelError(f"gpt: a width of {width} cannot be shared by {heads} heads; give a multiple")
    modules: OrderedDict[str, nn.Module] = OrderedDict(
        embedding=Embedding(vocabulary or classes, context, width)
    )
    for number in range(blocks):
        modules[f"block{number + 1}"] = Block(width, heads, causal=True)
    modules["norm"] = nn.LayerNorm(width)
    modules["fc"] = nn.Linear(width, classes, bias=False)
    model = nn.Sequential(modules)
    initialise_transformer(model, residual=1 / math.sqrt(2 * blocks))
    return model
