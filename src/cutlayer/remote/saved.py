"""The server's state on disk: weights, optimizer, and the last answers of each client.

With it a server that was killed goes on, and a request that clients send again is not applied twice. Saved
after an update and before its answers are sent, nothing is lost and nothing happens twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cutlayer.errors import CheckpointError
from cutlayer.split.state import half_state, load_half, under
from cutlayer.training import checkpoint

#: client -> (session, number of a request -> its answer as bytes, None if it has no body)
Answers = Mapping[int, tuple[int, Mapping[int, bytes]]]


class SavedState:
    """Checkpoints of a part and its optimizer in a directory, each `every` updates."""

    def __init__(
        self, directory: str | Path, part: nn.Module, optimizer: torch.optim.Optimizer | None, every: int
    ) -> None:
        self._directory = Path(directory)
        self._part = part
        self._optimizer = optimizer
        self._parameters = [p for p in part.parameters() if p.requires_grad]
        self._every = every

    def due(self, updates: int) -> bool:
        """Whether the state after so many updates is to be saved."""
        return updates % self._every == 0

    def save(self, updates: int, answers: Answers) -> None:
        """Write a checkpoint; the last two are kept."""
        tensors = half_state([self._part], self._parameters, self._optimizer)
        for client, (_, done) in answers.items():
            for number, body in done.items():
                if body:
                    tensors[f"answer.{client}.{number}"] = torch.frombuffer(
                        bytearray(body), dtype=torch.uint8
                    )
        about = {
            "sessions": {str(client): [session, sorted(done)] for client, (session, done) in answers.items()},
            "groups": [_plain(group) for group in self._optimizer.param_groups] if self._optimizer else [],
        }
        checkpoint.save(self._directory, updates, tensors, about, {"kind": "remote-loop"})
        checkpoint.keep(self._directory, 2)

    def restore(self) -> tuple[int, dict[int, tuple[int, dict[int, bytes]]]]:
        """How many updates the newest checkpoint has, and the answers; 0 and none if there is none."""
        found = checkpoint.latest(self._directory, run={"kind": "remote-loop"})
        if found is None:
            return 0, {}
        try:
            load_half(found.tensors, [self._part], self._parameters, self._optimizer)
            if self._optimizer is not None:
                for group, saved in zip(self._optimizer.param_groups, found.state["groups"], strict=True):
                    group.update(saved)
            bodies = {name: bytes(t.numpy().data) for name, t in under("answer.", found.tensors).items()}
            answers = {
                int(client): (session, {n: bodies.get(f"{client}.{n}", b"") for n in done})
                for client, (session, done) in found.state["sessions"].items()
            }
        except (LookupError, RuntimeError, TypeError, ValueError) as error:
            raise CheckpointError(f"{found.path}: does not fit this part and optimizer ({error})") from error
        return found.step, answers


def _plain(group: Mapping[str, Any]) -> dict[str, Any]:
    """What can be kept of an optimizer's group: learning rate and other numbers."""
    return {k: v for k, v in group.items() if k != "params" and isinstance(v, int | float | bool | str)}
