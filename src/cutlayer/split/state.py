"""The state of a half as named tensors, weights and optimizer, for checkpoints: get and restore."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from cutlayer.errors import CheckpointError
from cutlayer.split.client import ClientHalf
from cutlayer.split.server import ServerHalf


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
    return half_state(model.parts, model.parameters, model.optimizer) | model.updater.state()


def restore_client(half: ClientHalf, state: Mapping[str, Tensor], number: int) -> None:
    """Restore what `client_state` gave after `number` steps."""
    half.hang()
    load_half(state, half.model.parts, half.model.parameters, half.model.optimizer)
    half.model.updater.restore(state)
    half.model.applied = number - 1


def half_state(
    parts: Sequence[nn.Module], parameters: Sequence[Tensor], optimizer: torch.optim.Optimizer | None
) -> dict[str, Tensor]:
    """Weights and buffers under `model.`, the optimizer's state under `optimizer.`."""
    state = {f"model.{name}": t for part in parts for name, t in part.state_dict().items()}
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
    for part in parts:
        own = part.state_dict()
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


def under(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The entries whose names begin with a prefix, without the prefix."""
    return {name[len(prefix) :]: t for name, t in state.items() if name.startswith(prefix)}
