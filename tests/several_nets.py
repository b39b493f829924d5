"""Models whose cuts carry several tensors. Tests copy this file to where a run imports its models from."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class _Skips(nn.Module):
    """Down and up again, with a skip connection around the lower half."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.down1 = nn.Conv2d(in_channels, 4, 3, padding=1)
        self.down2 = nn.Conv2d(4, 6, 3, padding=1)
        self.up2 = nn.Conv2d(6, 4, 3, padding=1)
        self.up1 = nn.Conv2d(8, 4, 3, padding=1)

    def pixels(self, x: Tensor) -> Tensor:
        a = F.relu(self.down1(x))
        b = F.relu(self.down2(F.max_pool2d(a, 2)))
        c = F.interpolate(self.up2(b), scale_factor=2)
        return self.up1(torch.cat([c, a], 1))


class UNet(_Skips):
    """One class an image."""

    def __init__(self, classes: int, in_channels: int) -> None:
        super().__init__(in_channels)
        self.fc = nn.Linear(4, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.pixels(x).mean((2, 3)))


class MaskUNet(_Skips):
    """One class a pixel."""

    def __init__(self, classes: int, in_channels: int) -> None:
        super().__init__(in_channels)
        self.out = nn.Conv2d(4, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.relu(self.pixels(x)))


class Branches(nn.Module):
    """Both halves of an image on their own, until the end."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.left = nn.Linear(32, 8)
        self.right = nn.Linear(32, 8)
        self.join = nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.flatten(1).chunk(2, 1)
        left = self.left(left)
        return self.join(torch.cat([left, self.right(right)], 1).tanh())


class Masked(nn.Module):
    """The mask of dark pixels is a boolean that crosses; what it is made of does not."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(64, 16)
        self.second = nn.Linear(16 + 64, classes)

    def forward(self, x: Tensor) -> Tensor:
        dark = x.flatten(1) < 0.1
        return self.second(torch.cat([self.first(x.flatten(1)).tanh(), torch.where(dark, -1.0, 1.0)], 1))


class TwoInputs(nn.Module):
    """Tokens and floats, by keyword or by position."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.embed, self.scale, self.rest = nn.Embedding(5, 8), nn.Linear(3, 8), nn.Linear(8, classes)
        self.mix = nn.Tanh()

    def forward(self, ids: Tensor, values: Tensor) -> Tensor:
        return self.rest(self.mix(self.embed(ids).mean(1) + self.scale(values)))


SIZES = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
"""Of models of the transformers package."""


def bert_with(**settings: Any) -> nn.Module:
    """A BERT of the transformers package: `input_ids` and `attention_mask` by keyword."""
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(BertConfig(**settings))


def bert(classes: int) -> nn.Module:
    """A BERT without dropout."""
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return bert_with(vocab_size=8, max_position_embeddings=64, num_labels=classes, **dropout, **SIZES)


def vit_with(**settings: Any) -> nn.Module:
    """A ViT of the transformers package, for images of 8 x 8."""
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(ViTConfig(image_size=8, patch_size=4, **settings))


class Tokens(nn.Module):
    """A BERT that reads images: dark pixels are masked."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.bert = bert(classes)

    def forward(self, x: Tensor) -> Tensor:
        ids = (x.flatten(1)[:, :24] * 2).long().clamp(0, 7)
        return self.bert(input_ids=ids, attention_mask=ids != 0)


def adapted(classes: int) -> nn.Module:
    """A ViT of the transformers package with LoRA."""
    import peft

    model = vit_with(num_channels=1, num_labels=classes, **SIZES)
    return peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
