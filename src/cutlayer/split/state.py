"""The state of a half as named tensors, weights and optimizer, for checkpoints: get and restore.

Frozen weights, as those under LoRA adapters, are not in it: whoever builds the model has them. Their SHA-256
is, so that a checkpoint is not continued on another base.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from cutlayer.errors import CheckpointError
from cutlayer.split.client import ClientHalf
from cutlayer.split.server import ServerHalf

#: The name under which the SHA-256 of frozen weights is kept.
FROZEN = "frozen"
_LAST_MEAN = "last_mean"


def server_state(server: ServerHalf) -> dict[str, Tensor]:
    """The state of the server's half: weights, buffers and optimizer."""
    return half_state([server.part], server.parameters, server.optimizer) | server.updater.state()


def restore_server(server: ServerHalf, state: Mapping[str, Tensor]) -> None:
    """Restore what `server_state` gave."""
    load_half(state, [server.part], server.parameters, server.optimizer)
    server.updater.restore(state)
    server.discard()


def client_state(half: ClientHalf) -> dict[str, Tensor]:
    """The state of a client's half. Clients that share a model differ in buffers only."""
    half.hang()
    model = half.model
    state = half_state(model.parts, model.parameters, model.optimizer) | model.updater.state()
    return state if half.last_mean is None else state | {_LAST_MEAN: half.last_mean}


def restore_client(half: ClientHalf, state: Mapping[str, Tensor], number: int) -> None:
    """Restore what `client_state` gave after `number` steps."""
    half.hang()
    load_half(state, half.model.parts, half.model.parameters, half.model.optimizer)
    half.model.updater.restore(state)
    if half.last_mean is not None:
        if _LAST_MEAN not in state or state[_LAST_MEAN].shape != half.last_mean.shape:
            raise CheckpointError("the checkpoint does not have the last mean of the clients' weights")
        half.last_mean = state[_LAST_MEAN].clone()
    half.model.applied = number - 1


def half_state(
    parts: Sequence[nn.Module], parameters: Sequence[Tensor], optimizer: torch.optim.Optimizer | None
) -> dict[str, Tensor]:
    """Weights and buffers under `model.`, the optimizer's state under `optimizer.`."""
    state = {f"model.{name}": t for part in parts for name, t in _kept(part)}
    frozen = _frozen(parts)
    if frozen is not None:
        state[FROZEN] = frozen
    if optimizer is not None:
        for i, parameter in enumerate(parameters):
            for key, value in optimizer.state.get(parameter, {}).items():
                if value is not None:
                    state[f"optimizer.{i}.{key}"] = torch.as_tensor(value)
    return state


def load_half(
    state: Mapping[str, Tensor],
    parts: Sequence[nn.Module],
    parameters: Sequence[Tensor],
    optimizer: torch.optim.Optimizer | None,
) -> None:
    """Restore what `half_state` gave."""
    frozen = _frozen(parts)
    if frozen is not None and FROZEN in state and not torch.equal(frozen.cpu(), state[FROZEN].cpu()):
        raise CheckpointError(
            "the frozen weights are not those that the checkpoint was made with; build the model from the "
            "same base"
        )
    for part in parts:
        own = dict(_kept(part))
        missing = [name for name in own if f"model.{name}" not in state]
        if missing:
            raise CheckpointError(f"the checkpoint has no tensor {missing[0]!r}; it is of another model")
        for name, tensor in own.items():
            saved = state[f"model.{name}"]
            if saved.shape != tensor.shape:
                raise CheckpointError(
                    f"{name} has shape {list(saved.shape)} in the checkpoint and {list(tensor.shape)} in "
                    "the model"
                )
            # In one process clients share weights, and another may be between forward and backward: autograd
            # takes any write for a change.
            if tensor.device != saved.device or not torch.equal(tensor, saved):
                tensor.copy_(saved)
    if optimizer is None:
        return
    optimizer.state.clear()
    for name, tensor in state.items():
        kind, _, rest = name.partition(".")
        if kind == "optimizer":
            index, _, key = rest.partition(".")
            # A copy, in the memory format of the weight: an optimizer updates its state in place.
            weight = parameters[int(index)]
            memory = torch.empty_like(weight) if tensor.shape == weight.shape else torch.empty_like(tensor)
            optimizer.state.setdefault(weight, {})[key] = memory.copy_(tensor)


def _kept(part: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """What a checkpoint holds of a part: trained weights and buffers."""
    for name, tensor in part.state_dict(keep_vars=True).items():
        if not isinstance(tensor, nn.Parameter) or tensor.requires_grad:
            yield name, tensor.detach() if isinstance(tensor, Tensor) else tensor


def _frozen(parts: Sequence[nn.Module]) -> Tensor | None:
    """The SHA-256 of the weights that are not trained; None if all are."""
    found = [(n, p) for part in parts for n, p in part.named_parameters() if not p.requires_grad]
    if not found:
        return None
    digest = hashlib.sha256()
    for name, parameter in found:
        digest.update(f"{name} {tuple(parameter.shape)} {parameter.dtype}".encode())
        digest.update(parameter.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)


def under(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The entries whose names begin with a prefix, without the prefix."""
    return {name[len(prefix) :]: t for name, t in state.items() if name.startswith(prefix)}
