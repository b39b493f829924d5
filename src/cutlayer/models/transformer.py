"""The transformer block that GPT and ViT are made of: attention and MLP, each behind a layer norm."""

import torch
from torch import nn
from torch.nn import functional as F

_STD = 0.02


class Attention(nn.Module):
    """Multi-head self-attention; causal if no position may look ahead."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, T, width] to the same."""
        # Not x.shape unpacked: torch.fx follows these, too.
        q, k, v = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        found: torch.Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return found


class Block(nn.Module):
    """x + attention(norm(x)), and then x + mlp(norm(x))."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal=causal)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, T, width] to the same."""
        x = x + self.attention(self.norm1(x))
        found: torch.Tensor = x + self.down(F.gelu(self.up(self.norm2(x))))
        return found


def initialise_transformer(model: nn.Module, residual: float) -> None:
    """GPT-2's initialisation: normal with 0.02, and what is added to the residual stream scaled down."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            scale = residual if name.endswith(("attention.out", "down")) else 1.0
            nn.init.normal_(module.weight, std=_STD * scale)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, (nn.Embedding, nn.Conv2d)):
            nn.init.normal_(module.weight, std=_STD)
    for name, parameter in model.named_parameters():
        if name.endswith("position"):
            nn.init.normal_(parameter, std=_STD)
