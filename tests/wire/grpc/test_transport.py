"""Who takes part in a step, and who is let go: the hub without a network."""

import asyncio
from types import SimpleNamespace

import pytest

from cutlayer.errors import ConfigError, RefusedError, RollbackError
from cutlayer.wire.grpc.event_loop import background
from cutlayer.wire.grpc.peer import Stream
from cutlayer.wire.grpc.transport import GrpcTransport
from cutlayer.wire.limits import Limits
from cutlayer.wire.messages.base import pack
from cutlayer.wire.messages.types import Placeholder, Report
from cutlayer.wire.policy import Policy

REPORT = memoryview(b"".join(pack(Report(0, 8, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0))))


def stream() -> Stream:
    return Stream(lambda function: None)


def hub(clients: int, quorum: int) -> GrpcTransport:
    """All clients are members, under `drop` with a deadline that is over at once."""
    found = GrpcTransport(clients, Policy("drop", deadline=0.001, quorum=quorum))
    for peer in found.peers:
        wait(found, peer.number)
    found.begin(0)
    return found


def wait(found: GrpcTransport, client: int) -> None:
    """The client is connected and has its data."""
    found.peers[client].stream, found.peers[client].ready = stream(), SimpleNamespace()


def answers(found: GrpcTransport, client: int) -> None:
    with found.lock:
        found.arrived(client, REPORT)


def interrupt_later(found: GrpcTransport) -> None:
    """Ctrl-C at the second look, when the deadline is over: nothing else would end the wait."""
    looks = iter([False, True])
    found._interrupted = lambda: next(looks)


def test_who_does_not_answer_is_let_go_down_to_the_quorum() -> None:
    found = hub(3, quorum=2)
    answers(found, 0)
    answers(found, 2)
    assert found.present([0, 1, 2], 1) == (0, 2)
    assert found.members() == (0, 2)
    # Below it nobody is: the step waits, as when one comes late.
    found.peers[0].inbox.clear()
    interrupt_later(found)
    with pytest.raises(KeyboardInterrupt):
        found.present([0, 2], 1)
    assert found.members() == (0, 2)


def test_a_client_that_waits_to_come_back_counts_for_the_quorum() -> None:
    found = hub(3, quorum=2)
    found.peers[0].retire("AGAIN", "it was late")
    wait(found, 0)
    answers(found, 2)
    # Client 1 is dead. Without counting client 0 the run would wait for it, and client 0 for the next step.
    assert found.present([1, 2], 1) == (2,)
    assert found.members() == (2,)
    found.admit(0, step=1)
    assert found.members() == (0, 2)


def test_nobody_is_let_in_by_nobody() -> None:
    found = hub(2, quorum=1)
    found.peers[0].retire("AGAIN", "it was late")
    wait(found, 0)
    interrupt_later(found)
    with pytest.raises(KeyboardInterrupt):
        found.present([1], 1)
    found.peers[1].retire("AGAIN", "gone")
    with pytest.raises(RollbackError, match="only 0 clients are left, and the quorum is 1"):
        found.present([1], 1)


def test_who_dies_between_being_ready_and_the_beginning_is_waited_for() -> None:
    found = GrpcTransport(2)
    for client in range(2):
        wait(found, client)
    assert None not in found.assemble()
    peer = found.peers[1]
    assert peer.stream is not None
    with found.lock:
        found.lost(1, peer.stream)
    found.begin(0)
    assert found.members() == (0,)
    with pytest.raises(RollbackError, match="client 1 is not there any more"):
        found.receive(1)


def test_the_first_to_answer_is_enough_and_a_slow_one_may_be_slow() -> None:
    found = hub(3, quorum=1)
    answers(found, 1)
    answers(found, 2)
    answers(found, 2)
    assert found.first_present([0, 1, 2], 2) == (2,)
    assert found.first_present([1, 2], 1) == (1, 2)
    # The deadline is over, but all are connected: Ctrl-C waits for them, too, until nobody is.
    looks = iter([True, True])
    found._interrupted = lambda: bool(next(looks, answers(found, 0)))
    assert found.first_present([0], 2) == (0,)
    assert found.members() == (0, 1, 2)


def test_who_has_no_connection_is_let_go_at_the_deadline() -> None:
    found = hub(2, quorum=1)
    peer = found.peers[1]
    assert peer.stream is not None
    with found.lock:
        found.lost(1, peer.stream)
    found._interrupted = lambda: answers(found, 0) or False
    assert found.first_present([0, 1], 3) == (0,)
    assert found.members() == (0,)
    # Whoever comes back is to be let in before anybody is waited for.
    wait(found, 1)
    assert found.first_present([0], 4) == ()
    found.admit(1, step=1)
    assert found.members() == (0, 1)
    for member in found.peers:
        member.retire("AGAIN", "gone")
    with pytest.raises(RollbackError, match="only 0 clients are left, and the quorum is 1"):
        found.first_present([0, 1], 1)


def test_a_patient_hub_goes_back_when_one_of_many_is_gone() -> None:
    found = GrpcTransport(2)
    for client in range(2):
        wait(found, client)
    found.begin(0)
    found.peers[1].retire("AGAIN", "gone")
    with pytest.raises(RollbackError, match="not there any more"):
        found.first_present([0, 1], 1)


def test_who_is_silent_for_too_long_has_to_connect_again() -> None:
    found = GrpcTransport(1, Policy("drop", deadline=1000.0), Limits(silence=1e-9))
    wait(found, 0)
    found.begin(0)
    told = found.peers[0].stream
    assert told is not None
    looks = iter([False, False, True])
    found._interrupted = lambda: next(looks)
    with pytest.raises(KeyboardInterrupt):
        found.first_present([0], 1)
    assert found.peers[0].stream is None
    assert found.members() == (0,)
    assert any("no answer for" in str(said) for said in told.control)


def test_policies_that_make_no_sense() -> None:
    for bad in ({"deadline": 0.0}, {"quorum": 0}):
        with pytest.raises(ConfigError):
            Policy("drop", **bad)


@pytest.mark.parametrize(("clients", "at_once"), [(50, False), (3, True)])
def test_messages_to_many_go_out_together(clients: int, at_once: bool) -> None:
    # From fifty clients on; with fewer, they can use the time.
    found = hub(clients, quorum=1)
    woken: list[int] = []
    for peer in found.peers:
        peer.stream = Stream(lambda function, number=peer.number: woken.append(number))  # type: ignore[misc]
    found.tell([0, 1], Placeholder(4))
    found.send(0, Placeholder(5))
    assert woken == ([0, 1, 0] if at_once else [])
    # When this thread waits, or a moment later by themselves.
    with found.lock:
        found._wait()
    assert woken == ([0, 1, 0] if at_once else [0, 1])
    for number, kept in ((0, 2), (1, 1)):
        conversation = found.peers[number].conversation
        assert conversation is not None
        assert len(conversation.batch(0, several=True)) == kept
    background().run(asyncio.sleep(0.1))
    woken.clear()
    found.send(1, Placeholder(6))
    background().run(asyncio.sleep(0.1))
    assert woken == [1]


def test_a_thread_that_waits_for_one_of_many_takes_all_that_came() -> None:
    found = hub(50, quorum=1)

    async def both_answer() -> None:
        answers(found, 0)
        answers(found, 1)

    background().soon(lambda: background().loop.create_task(both_answer()))
    assert found.receive(0) == Report(0, 8, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    assert found.peers[1].inbox


def test_a_new_name_gets_the_next_place_of_an_elastic_run_only() -> None:
    fixed = GrpcTransport(3, names=("ann",))
    assert fixed.place_of("ann") == 0
    with pytest.raises(RefusedError, match="'bob' is not among the clients"):
        fixed.place_of("bob")
    elastic = GrpcTransport(2, Policy("drop", elastic=True), names=("ann",))
    assert [elastic.place_of(name) for name in ("bob", "ann", "bob")] == [1, 0, 1]
    with pytest.raises(RefusedError, match="all 2 places of this run are taken"):
        elastic.place_of("cat")


def test_who_has_no_connection_is_let_go() -> None:
    found = hub(3, quorum=1)
    found.peers[1].stream = None
    assert found.members() == (0, 1, 2)
    assert found.reachable() == (0, 2)
    found.let_go()
    assert found.members() == (0, 2)


def comes_again(found: GrpcTransport, client: int, attempt: int = 1) -> None:
    """The client's connection breaks, and a new process of it connects."""
    peer = found.peers[client]
    with found.lock:
        if peer.stream is not None:
            found.lost(client, peer.stream)
        hello = SimpleNamespace(incarnation=bytes([attempt]) * 16, attempt=1, era="", received=0)
        assert not found.greet(client, hello, stream())


def test_under_wait_only_those_who_hold_a_state_take_the_run_back() -> None:
    notes: list[str] = []
    found = GrpcTransport(3, note=notes.append)
    for client in range(3):
        wait(found, client)
    found.begin(0)
    found.need([1])
    comes_again(found, 0)
    found._glance()
    assert found.members() == (1, 2)
    # It is waited for if it is drawn next, and let in; one that only lost its connection is kept if needed.
    found.need(())
    found._interrupted = lambda: wait(found, 0) or False
    assert not found.all_there([0, 2])
    assert notes == ["waiting for client 0"]
    found.admit(0, step=1)
    assert found.all_there([0, 2])
    found.need([0, 2])
    found.peers[1].stream = found.peers[2].stream = None
    found.let_go()
    assert found.members() == (0, 2)
    comes_again(found, 2)
    with pytest.raises(RollbackError, match="client 2 came back without its state"):
        found._glance()


def test_a_new_era_needs_everybody() -> None:
    found = GrpcTransport(2)
    for client in range(2):
        wait(found, client)
    found.need([0])
    found.begin(0)
    comes_again(found, 1)
    with pytest.raises(RollbackError, match="client 1 came back without its state"):
        found._glance()
