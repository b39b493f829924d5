"""How long simulated clients compute: a formula of their speeds, so that simulated time is reproducible."""

from dataclasses import dataclass

from cutlayer.seeds import derive

#: A backward pass computes gradients of weights and of inputs: twice the products of a forward pass.
FORWARD, BACKWARD = 1, 2
_UNIT = float(1 << 63)


@dataclass(frozen=True)
class SimulatedWork:
    """The compute time of each client.

    >>> SimulatedWork(madds=1000, device=1e6, speeds=(1.0, 0.1)).seconds(1, 0, 32, FORWARD)
    0.32
    """

    madds: int
    """Multiply-adds of a client's half for one sample."""
    device: float
    """Multiply-adds a second of a client of speed 1."""
    speeds: tuple[float, ...] = ()
    """Clients get them one after another, again and again; without any, all have speed 1."""
    jitter: float = 0.0
    """By which share a batch may take more or less time."""
    seed: int = 0

    def seconds(self, client: int, number: int, samples: int, passes: int) -> float:
        """What a client's passes over so many samples take in the step of that number."""
        speed = self.speeds[client % len(self.speeds)] if self.speeds else 1.0
        # A half without products takes some time, too.
        seconds = passes * max(1, self.madds) * samples / (self.device * speed)
        if not self.jitter:
            return seconds
        drawn = derive("jitter", self.seed, client, number, passes) / _UNIT
        return seconds * (1 + self.jitter * (2 * drawn - 1))
