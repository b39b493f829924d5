"""Who takes part in a step, and who has the clients' half: one object of the server, by the settings."""

from collections.abc import Callable

import pytest

from cutlayer.server.asynchronous.mode import AsyncMode
from cutlayer.server.participation import AllClients, Participation
from cutlayer.server.sampled_rounds import SampledRounds
from cutlayer.training.local_run import LocalRun
from cutlayer.wire.messages.types import Share


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ((), AllClients),
        (("train.mode=relay",), AllClients),
        (("train.clients_per_step=2",), SampledRounds),
        (("train.mode=async",), AsyncMode),
    ],
    ids=["parallel", "relay", "sampled", "async"],
)
def test_settings_say_who_takes_part(
    settings: tuple[str, ...], kind: type[Participation], start: Callable[..., LocalRun]
) -> None:
    found = start(*settings).server.participation
    assert type(found) is kind
    assert (found.kept(0) is None) == (kind is AllClients)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((), ((0, 1, 2), Share.BUFFERS)),
        (("train.sync=2",), ((0, 1, 2), Share.WEIGHTS)),
        (("train.mode=relay",), ((1,), Share.WEIGHTS)),
    ],
    ids=["gradients are shared", "weights are shared", "relay"],
)
def test_clients_are_asked_for_that_in_which_they_differ(
    settings: tuple[str, ...], expected: tuple[tuple[int, ...], Share], start: Callable[..., LocalRun]
) -> None:
    clients, share = start(*settings).server.participation.holders(4, holder=1)
    assert (tuple(clients), share) == expected
