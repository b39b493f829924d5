"""What a server does about clients that do not answer: wait for them, or go on without."""

from dataclasses import dataclass
from typing import Literal

from cutlayer.errors import ConfigError


@dataclass(frozen=True)
class Policy:
    """What to do about clients that do not answer."""

    straggler: Literal["wait", "drop"] = "wait"
    deadline: float = 30.0
    """Drop: seconds that a step waits for its clients."""
    quorum: int = 1
    """Drop: clients that have to be left for the run to go on, whatever the deadline."""
    elastic: bool = False
    """Drop: clients may join and leave at any time, and the run begins when its quorum is there."""

    def __post_init__(self) -> None:
        if not self.deadline > 0:
            raise ConfigError(f"the deadline must be more than 0 seconds, not {self.deadline}")
        if self.quorum < 1:
            raise ConfigError(f"the quorum must be at least 1 client, not {self.quorum}")
