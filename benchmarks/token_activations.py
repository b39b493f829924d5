"""Activations of a small GPT and a small ViT, for benchmarks of codecs on tokens.

    python benchmarks/token_activations.py --root ~/data --out tokens

Trains both in plain PyTorch for some minutes (the GPT on `tinyshakespeare/input.txt`, characters; the ViT on
`cifar10`) and saves their weights and a batch that they were not trained on. Both are pre-norm transformers:
what leaves a block is the residual stream, which is what crosses a cut.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from cutlayer.data import Augment, Dataset, load

WIDTH, HEADS, BLOCKS = 128, 4, 4
CONTEXT = 128
PATCH = 4
STEPS = {"gpt": 350, "vit": 250}


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Attention and a multilayer perceptron, each added to its input."""
        n, t, _ = x.shape
        q, k, v = self.qkv(self.before(x)).view(n, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(seen.transpose(1, 2).reshape(n, t, WIDTH))
        widened: Tensor = self.mlp(self.between(x))
        return x + widened


class Transformer(nn.Module):
    """Embedding, blocks and a head; `activations` gives what leaves each block."""

    def __init__(self, embed: nn.Module, tokens: int, classes: int, causal: bool) -> None:
        super().__init__()
        self.embed, self.causal = embed, causal
        if isinstance(embed, nn.Embedding):
            nn.init.normal_(embed.weight, std=0.02)
        self.place = nn.Parameter(0.02 * torch.randn(tokens, WIDTH))
        self.blocks = nn.ModuleList(Block(causal) for _ in range(BLOCKS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, classes)

    def activations(self, x: Tensor) -> list[Tensor]:
        """What leaves each block, the first one's first."""
        found = [self.embed(x) + self.place]
        for block in self.blocks:
            found.append(block(found[-1]))
        return found[1:]

    def behind(self, x: Tensor, block: int) -> Tensor:
        """Logits of each token, or of the mean of all tokens, from what leaves a block (1 is the first)."""
        for later in self.blocks[block:]:
            x = later(x)
        last = self.norm(x)
        return self.head(last if self.causal else last.mean(1))  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.behind(self.embed(x) + self.place, 0)


def train(name: str, model: nn.Module, batch: Callable[[int], tuple[Tensor, Tensor]]) -> None:
    """Train with AdamW and a one-cycle schedule."""
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=STEPS[name])
    for step in range(STEPS[name]):
        x, y = batch(step)
        loss = nn.functional.cross_entropy(model(x).flatten(0, -2), y.flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 49:
            print(f"{name}: step {step + 1} of {STEPS[name]}, loss {loss.item():.3f}", flush=True)


def gpt(letters: int) -> Transformer:
    """The GPT, with random weights."""
    torch.manual_seed(0)
    return Transformer(nn.Embedding(letters, WIDTH), CONTEXT, letters, causal=True)


def vit() -> Transformer:
    """The ViT, with random weights."""
    torch.manual_seed(0)
    patches = nn.Sequential(nn.Unfold(PATCH, stride=PATCH), _Transpose(), nn.Linear(3 * PATCH**2, WIDTH))
    return Transformer(patches, (32 // PATCH) ** 2, 10, causal=False)


def trained_gpt(root: Path) -> tuple[Transformer, Tensor, Tensor]:
    """The trained GPT, and 64 windows of the last tenth of the text with their next characters."""
    raw = (root / "tinyshakespeare" / "input.txt").read_text()
    letters = sorted(set(raw))
    text = torch.tensor([letters.index(c) for c in raw])
    split = len(text) * 9 // 10
    generator = torch.Generator().manual_seed(0)

    def windows(part: Tensor, count: int) -> tuple[Tensor, Tensor]:
        at = torch.randint(len(part) - CONTEXT - 1, (count, 1), generator=generator) + torch.arange(CONTEXT)
        return part[at], part[at + 1]

    model = gpt(len(letters))
    train("gpt", model, lambda _: windows(text[:split], 16))
    return model, *windows(text[split:], 64)


def trained_vit(root: Path) -> tuple[Transformer, Tensor, Tensor]:
    """The trained ViT, and 512 test images with their labels."""
    data, test = load(root / "cifar10", "train", limit=25_000), load(root / "cifar10", "test", limit=512)
    assert isinstance(data, Dataset)
    assert isinstance(test, Dataset)
    prepare = Augment.of(data)
    generator = torch.Generator().manual_seed(0)

    def batch(step: int) -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(data), (64,), generator=generator)
        return prepare.train(data.images[chosen], seed=0, client=0, epoch=0, step=step), data.labels[chosen]

    model = vit()
    train("vit", model, batch)
    return model, prepare.test(test.images), test.labels


class _Transpose(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


def load_or_train(name: str, root: Path, out: Path) -> tuple[Transformer, Tensor, Tensor]:
    """A trained model, a batch and its targets, from `out` if they are there."""
    saved = out / f"{name}.safetensors"
    if not saved.is_file():
        model, x, y = (trained_gpt if name == "gpt" else trained_vit)(root)
        out.mkdir(parents=True, exist_ok=True)
        weights = {f"model.{k}": v.contiguous() for k, v in model.state_dict().items()}
        save_file({**weights, "x": x, "y": y}, saved)
    found = load_file(saved)
    x, y = found.pop("x"), found.pop("y")
    model = gpt(len(found["model.head.bias"])) if name == "gpt" else vit()
    model.load_state_dict({k.removeprefix("model."): v for k, v in found.items()})
    return model.eval(), x, y


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, required=True, help="the folder with the data sets")
    parser.add_argument("--out", type=Path, default=Path("tokens"), help="where models and batches are kept")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in ("gpt", "vit"):
        model, x, y = load_or_train(name, options.root, options.out)
        with torch.no_grad():
            loss = nn.functional.cross_entropy(model(x).flatten(0, -2), y.flatten())
        print(f"{name}: loss {float(loss):.4f} on the batch")
