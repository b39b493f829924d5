"""The paper's models (VGG19, ResNet18, ResNet34), a tiny one, and a user's own, built by name.

Models are plain `nn.Module`s. Nothing here knows about parts, codecs, data or the network: a named cut is
only the name of a module.
"""

from cutlayer.models.allowed import ANY_MODEL, AllowedModels, Factory
from cutlayer.models.registry import MODELS, BuiltIn, Cuts, build, cut_module

__all__ = ["ANY_MODEL", "MODELS", "AllowedModels", "BuiltIn", "Cuts", "Factory", "build", "cut_module"]
