"""What torchrun tells a process about itself: its rank, of how many, and how often it was started again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from cutlayer.errors import ConfigError
from cutlayer.wire.address import parse_address


@dataclass(frozen=True)
class RankEnvironment:
    """One process among those that torchrun started."""

    rank: int
    world: int
    local_rank: int
    restarts: int
    keeps_store: bool = False
    """Whether ranks meet at a store of torchrun's own, which stays when they are started again."""

    @staticmethod
    def read(environment: Mapping[str, str] = os.environ) -> RankEnvironment | None:
        """From the environment variables of torchrun; None without it."""
        if "TORCHELASTIC_RUN_ID" not in environment:
            return None
        try:
            return RankEnvironment(
                int(environment["RANK"]),
                int(environment["WORLD_SIZE"]),
                int(environment["LOCAL_RANK"]),
                int(environment.get("TORCHELASTIC_RESTART_COUNT", "0")),
                environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
            )
        except (KeyError, ValueError) as error:
            raise ConfigError(
                f"torchrun's environment variables are not whole ({error}); start ranks with "
                "torchrun --nproc-per-node N -m cutlayer serve ..."
            ) from None

    def address(self, given: str) -> str:
        """The address of this rank: its own in a list, or the port plus its number on this machine.

        >>> RankEnvironment(3, 4, 1, 0).address("10.0.0.7:50551")
        '10.0.0.7:50552'
        """
        listed = [one.strip() for one in given.split(",")]
        if len(listed) > 1:
            if self.local_rank >= len(listed):
                raise ConfigError(
                    f"{given}: {len(listed)} addresses, but this machine has a rank {self.local_rank}, "
                    "counted from 0; give one address for each, or one alone, whose port is counted up"
                )
            return listed[self.local_rank]
        host, port = parse_address(given)
        if port == 0:
            return given
        if port + self.local_rank > 65535:
            raise ConfigError(f"{given}: there is no port {port + self.local_rank} for rank {self.rank}")
        return f"[{host}]:{port + self.local_rank}" if ":" in host else f"{host}:{port + self.local_rank}"
