"""Clients in one word: who is slow is judged by the others, and by what it owes."""

from typing import Any

import pytest

from cutlayer.dashboard.client_view import ClientView, RunFacts, states


def client(
    number: int, answer: float | None = 0.02, pending: float | None = None, **more: Any
) -> dict[str, Any]:
    about = {"client": number, "connected": True, "member": True, "waiting": False, "seen": 100.0}
    return about | {"answer_seconds": answer, "pending_seconds": pending, "up": 0, "down": 0} | more


@pytest.mark.parametrize(
    ("one", "word"),
    [
        (client(0), "connected"),
        (client(0, answer=0.2), "slow"),
        (client(0, answer=0.09), "connected"),  # three times the others', but nobody would notice
        (client(0, pending=1.0), "slow"),
        (client(0, pending=0.5), "connected"),
        (client(0, answer=None, pending=1.0), "slow"),
        (client(0, connected=False), "lost"),
        (client(0, connected=False, seen=None), "absent"),
        (client(0, waiting=True), "waiting"),
    ],
)
def test_state_of_a_client_among_others(one: dict[str, Any], word: str) -> None:
    assert states([one, client(1), client(2, answer=0.03)])[0] == word


def test_all_are_slow_together_is_nobody_is_slow() -> None:
    assert states([client(n, answer=5.0, pending=6.0) for n in range(3)]) == ["connected"] * 3
    assert states([client(0, answer=5.0)]) == ["connected"]


def test_bytes_a_second_are_those_of_the_last_seconds() -> None:
    view, facts = ClientView(), RunFacts([7], {"0": 1.5}, 2.0)
    rates = [
        view.rows([client(0, up=up, down=10)], at, facts, over=False)[0]["up_rate"]
        for at, up in ((0.0, 0), (1.0, 100), (2.0, 200), (30.0, 200), (34.0, 600))
    ]
    assert rates == [None, 100.0, 100.0, pytest.approx(0.0, abs=4), 100.0]
    row = view.rows([client(0)], 35.0, facts, over=True)[0]
    assert (row["state"], row["up_rate"], row["samples"], row["bits"]) == ("over", None, 7, 1.5)
    assert facts.bits_of(3) == 2.0
    assert facts.samples_of(3) is None


def test_clients_in_one_process_have_the_links_in_turn() -> None:
    facts = RunFacts([5, 6, 7], links=["20mbit,10ms", "1mbit"])
    rows = facts.local_rows({"1": {"up": 3, "down": 4}, "2": "damaged"}, over=False)
    assert [row["link"] for row in rows] == ["20mbit,10ms", "1mbit", "20mbit,10ms"]
    assert [(row["up"], row["down"]) for row in rows] == [(None, None), (3, 4), (None, None)]
