"""Each client of a run as the page shows it: its state in one word, its bytes a second, its answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

# Over how many seconds bytes a second are measured.
_WINDOW = 4.0
# Slower than this many times the others' median, and than this many seconds, a client is called slow.
_TIMES, _LEAST = 3.0, 0.1
# One that owes an answer for so long, and for so many times the others' median, is called slow, too.
_PENDING_TIMES, _PENDING_LEAST = 4.0, 0.7


class ClientView:
    """Follows the clients from one status to the next."""

    def __init__(self) -> None:
        self._earlier: deque[tuple[float, dict[int, tuple[int, int]]]] = deque()

    def rows(
        self, clients: Sequence[Mapping[str, Any]], at: float, about: RunFacts, over: bool
    ) -> list[dict[str, Any]]:
        """All clients of a run over the network, as its status of the time `at` has them."""
        now = {int(c["client"]): (int(c.get("up", 0)), int(c.get("down", 0))) for c in clients}
        if not self._earlier or self._earlier[-1][0] < at:
            self._earlier.append((at, now))
        while len(self._earlier) > 2 and at - self._earlier[1][0] >= _WINDOW:
            self._earlier.popleft()
        then, before = self._earlier[0]
        found = []
        for client, state in zip(clients, states(clients), strict=True):
            number = int(client["client"])
            rates = _rates(now[number], before.get(number, now[number]), at - then)
            found.append(
                {
                    "client": number,
                    "name": str(client.get("name", "")),
                    "state": "over" if over else state,
                    "up_rate": None if over else rates[0],
                    "down_rate": None if over else rates[1],
                    "bits": about.bits_of(number),
                    "link": str(client.get("link", "")),
                    "answer": client.get("answer_seconds"),
                    "pending": None if over else client.get("pending_seconds"),
                    "seen": client.get("seen"),
                    "samples": about.samples_of(number),
                    "up": now[number][0],
                    "down": now[number][1],
                }
            )
        return found


class RunFacts:
    """What a run's files tell of a client by its number: samples, bits an element, its simulated link."""

    def __init__(
        self,
        samples: Sequence[int] = (),
        bits: Mapping[str, float] | None = None,
        mean_bits: float | None = None,
        links: Sequence[str] = (),
    ) -> None:
        self.samples = samples
        self._bits = bits or {}
        self._mean_bits = mean_bits
        self._links = links

    def samples_of(self, client: int) -> int | None:
        """How many training samples it has."""
        return self.samples[client] if client < len(self.samples) else None

    def bits_of(self, client: int) -> float | None:
        """Bits an element of its smashed data: its own, or those of all where one codec is for all."""
        return self._bits.get(str(client), self._mean_bits)

    def link_of(self, client: int) -> str:
        """The link that is simulated for it in one process."""
        return self._links[client % len(self._links)] if self._links else ""

    def local_rows(self, sent: Mapping[str, Any], over: bool) -> list[dict[str, Any]]:
        """All clients of a run in one process. `sent` are their bytes so far, by number."""
        rows = []
        for number, samples in enumerate(self.samples):
            bytes_of = sent.get(str(number))
            known = bytes_of if isinstance(bytes_of, Mapping) else {}
            rows.append(
                {
                    "client": number,
                    "name": "",
                    "state": "over" if over else "in process",
                    "up_rate": None,
                    "down_rate": None,
                    "bits": self.bits_of(number),
                    "link": self.link_of(number),
                    "answer": None,
                    "pending": None,
                    "seen": None,
                    "samples": samples,
                    "up": known.get("up"),
                    "down": known.get("down"),
                }
            )
        return rows


def states(clients: Sequence[Mapping[str, Any]]) -> list[str]:
    """One word for each: connected, slow, waiting (to be let in), lost, or absent (never came)."""
    answers = sorted(float(c["answer_seconds"]) for c in clients if c.get("answer_seconds") is not None)
    return [_state(client, answers) for client in clients]


def _state(client: Mapping[str, Any], answers: Sequence[float]) -> str:
    if not client.get("connected"):
        return "absent" if client.get("seen") is None else "lost"
    if client.get("waiting"):
        return "waiting"
    pending, answer = client.get("pending_seconds"), client.get("answer_seconds")
    usual = _median_without(answers, answer)
    if pending is not None and pending > max(_PENDING_LEAST, _PENDING_TIMES * (usual or 0)):
        return "slow"
    if usual is not None and answer is not None and answer > max(_LEAST, _TIMES * usual):
        return "slow"
    return "connected"


def _median_without(ordered: Sequence[float], own: float | None) -> float | None:
    """The median of the other clients' answers; among many, one's own does not matter."""
    if own is not None and len(ordered) <= 32:
        place = ordered.index(own)
        ordered = [*ordered[:place], *ordered[place + 1 :]]
    return ordered[len(ordered) // 2] if ordered else None


def _rates(
    now: tuple[int, int], before: tuple[int, int], seconds: float
) -> tuple[float | None, float | None]:
    if seconds <= 0:
        return None, None
    up, down = (max(0, a - b) / seconds for a, b in zip(now, before, strict=True))
    return up, down
