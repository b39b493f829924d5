"""What one end of a run remembers of a client's samples, so that a batch travels as what has changed.

Client and server each hold one for a client: AQ-SGD sends differences to a sample's last visit, SplitCom only
samples that have changed (`codec.memory`). Which samples a batch has, both know: their order is a function
of the run's seed, the client, its number of samples and the epoch. So no index is sent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from cutlayer.codecs.rivals.aqsgd import ActivationDifferences
from cutlayer.codecs.rivals.memory_spec import MemorySpec
from cutlayer.codecs.rivals.sample_memory import SampleMemory
from cutlayer.codecs.rivals.splitcom import SkipUnchanged
from cutlayer.config.schema import Config
from cutlayer.data.sampler import Sampler
from cutlayer.data.spec import DataSpec
from cutlayer.errors import CheckpointError, ConfigError, InputError
from cutlayer.protocol.run_codecs import codec_of
from cutlayer.protocol.tensor_forms import Forms, forms_at_cuts
from cutlayer.seeds import derive
from cutlayer.split import Part

#: How the names of its tensors begin, in a checkpoint and in a client's state.
NAME = "samples."
#: Bytes of a remembered value. Both ends round alike.
_DTYPE = torch.float16
_GIB = 1 << 30


class ClientMemory:
    """One end's memory of the samples of one client."""

    def __init__(self, config: Config, client: int, samples: int, shape: Sequence[int]) -> None:
        how = MemorySpec.parse(config.codec.memory)
        train, self._place = config.train, (config.seed, client)
        self._sampler = Sampler(
            torch.arange(samples),
            train.batch_size,
            seed=config.seed,
            client=client,
            drop_last=train.drop_last,
        )
        self._memory = SampleMemory(samples, shape, _DTYPE)
        up = codec_of(config.codec.up)
        self._policy: ActivationDifferences | SkipUnchanged
        if how.change:
            self._policy = ActivationDifferences(self._memory, up, codec_of(how.change))
        else:
            self._policy = SkipUnchanged(self._memory, up, how.threshold)

    def encode(self, x: Tensor, epoch: int, step: int) -> bytes:
        """The message for the batch of a step."""
        seed = derive("codec/up", *self._place, epoch, step)
        return self._policy.encode(x, self._sampler.batch(epoch, step), seed)

    def decode(self, message: bytes, epoch: int, step: int) -> Tensor:
        """The batch of a step. What cannot be raises FrameError, and nothing of it is remembered."""
        return self._policy.decode(message, self._sampler.batch(epoch, step))

    def recall(self, epoch: int, step: int) -> Tensor:
        """The batch of a step as it is remembered."""
        return self._memory.recall(self._sampler.batch(epoch, step))

    def state(self) -> dict[str, Tensor]:
        """All that has to be kept to continue later. Between steps both ends have the same."""
        return {f"{NAME}{name}": tensor for name, tensor in self._memory.state().items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what `state` gave; from nothing if there is nothing."""
        found = {name.removeprefix(NAME): t for name, t in state.items() if name.startswith(NAME)}
        try:
            if found:
                self._memory.restore(found)
            else:
                self._memory.clear()
        except (InputError, KeyError) as error:
            raise CheckpointError(f"the memory of a client's samples cannot be restored ({error})") from None


def make_memory(config: Config, client: int, samples: int, forms: Forms) -> ClientMemory | None:
    """The memory of one client's samples, whose smashed data have these forms; None if the run has none."""
    if config.codec.memory == "none":
        return None
    check_memory(config, samples, forms, config.codec.memory_limit)
    return ClientMemory(config, client, samples, _one_shape(forms))


def server_memories(config: Config, spec: DataSpec, parts: Sequence[Part]) -> dict[int, ClientMemory]:
    """What a server remembers of all clients' samples."""
    if config.codec.memory == "none":
        return {}
    forms = forms_at_cuts(spec, parts)[0]
    check_memory(config, sum(spec.samples), forms, config.codec.memory_limit)
    shape = _one_shape(forms)
    return {
        client: ClientMemory(config, client, samples, shape) for client, samples in enumerate(spec.samples)
    }


def check_memory(config: Config, samples: int, forms: Forms, allowed: float) -> None:
    """Raise if to remember so many samples, of these forms, takes more than the GiB that are allowed."""
    needed = _DTYPE.itemsize * math.prod(_one_shape(forms)) * samples / _GIB
    if needed > allowed:
        raise ConfigError(
            f"codec.memory: to remember {samples:,} samples takes {needed:.3g} GiB; codec.memory_limit = "
            f"{config.codec.memory_limit:g}, of all clients together, leaves {allowed:.3g} for them. Raise "
            "codec.memory_limit, cut where activations are smaller, or leave codec.memory out"
        )


def memory_bytes(config: Config, samples: int, forms: Forms) -> int:
    """Bytes of a client's memory in a State message."""
    if config.codec.memory == "none":
        return 0
    return samples * (1 + _DTYPE.itemsize * math.prod(_one_shape(forms)))


def _one_shape(forms: Forms) -> tuple[int, ...]:
    if isinstance(forms, dict):
        raise ConfigError(
            f"codec.memory: several tensors cross the cut ({', '.join(forms)}), and it remembers one; cut "
            "elsewhere, or leave it out"
        )
    return forms
