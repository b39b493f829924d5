"""The paper's models (VGG19, ResNet18, ResNet34), a tiny one, an MLP, a GPT, a ViT, and a user's own.

Models are plain `nn.Module`s. Nothing here knows about parts, codecs, data or the network: a named cut is
only the name of a module.
"""

from cutlayer.models.allowed import ANY_MODEL, AllowedModels, Factory
from cutlayer.models.registry import MODELS, OPTIONS, BuiltIn, Cuts, build, cut_module

__all__ = [
    "ANY_MODEL",
    "MODELS",
    "OPTIONS",
    "AllowedModels",
    "BuiltIn",
    "Cuts",
    "Factory",
    "build",
    "cut_module",
]
