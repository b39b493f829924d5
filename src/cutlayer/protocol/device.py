"""The device that settings name, if it is there."""

import torch

from cutlayer.errors import ConfigError

_KINDS = ("cpu", "cuda", "mps")


def resolve_device(spec: str) -> torch.device:
    """`cpu`, `cuda`, `cuda:1` or `mps` as a device. Raises ConfigError if it is not there."""
    try:
        device = torch.device(spec)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in _KINDS:
        raise ConfigError(f"train.device: {spec!r} cannot train; use cpu, cuda, cuda:1, ... or mps")
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            there = f"there are {count} CUDA devices, from cuda:0" if count else "there is no CUDA device"
            raise ConfigError(
                f"train.device: {spec} is not available: {there} (PyTorch {torch.__version__}); use cpu, or "
                "install a PyTorch for your GPU"
            )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ConfigError(
            f"train.device: mps is not available here (PyTorch {torch.__version__}); use cpu or cuda"
        )
    return device
