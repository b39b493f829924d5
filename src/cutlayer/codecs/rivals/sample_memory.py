"""What both ends remember of each sample: the activation that was last decoded for it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from cutlayer.codecs.entropy.layout import malformed
from cutlayer.errors import InputError


class SampleMemory:
    """The last decoded activation of each of `samples` samples, all of one shape.

    Client and server each hold one. Both see the same sample numbers, which are a pure function of the run's
    seed, the client, the epoch and the step, and put the same decoded tensors in, so both stay equal.
    """

    def __init__(self, samples: int, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> None:
        """`dtype`: what activations are remembered as; both ends have to round alike."""
        self.shape = tuple(shape)
        self._known = torch.zeros(samples, dtype=torch.bool)
        self._last = torch.zeros(samples, *self.shape, dtype=dtype)
        self._most = torch.finfo(dtype).max

    def known(self, indices: Tensor) -> Tensor:
        """Whether each of these samples was seen before."""
        self._check(indices)
        return self._known[indices]

    def recall(self, indices: Tensor) -> Tensor:
        """The last activations of these samples; zeros for those that were never seen."""
        self._check(indices)
        return self._last[indices].float()

    def store(self, indices: Tensor, activations: Tensor) -> None:
        """Remember activations. FrameError if one is NaN or infinite: it would spoil all later visits."""
        self._check(indices)
        if not torch.isfinite(activations).all():
            raise malformed("an activation is NaN or infinite")
        self._last[indices] = activations.clamp(-self._most, self._most).to(self._last.dtype)
        self._known[indices] = True

    def clear(self) -> None:
        """Forget everything."""
        self._known.zero_()
        self._last.zero_()

    def state(self) -> dict[str, Tensor]:
        """All that has to be kept to continue later."""
        return {"known": self._known.clone(), "last": self._last.clone()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from what `state` gave."""
        for name, own in (("known", self._known), ("last", self._last)):
            if state[name].shape != own.shape or state[name].dtype != own.dtype:
                raise InputError(
                    f"the memory of samples has {name} of shape {tuple(state[name].shape)}; "
                    f"this run needs {tuple(own.shape)}"
                )
            own.copy_(state[name])

    def _check(self, indices: Tensor) -> None:
        if indices.dim() != 1 or len(set(indices.tolist())) != len(indices):
            raise InputError("a batch names each of its samples once")
        if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < len(self._known):
            raise InputError(f"a sample is not one of the {len(self._known)} of this memory")
