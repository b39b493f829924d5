"""What a client says of its data is checked before anything is made of it, and compared with the others'."""

import math
from typing import Any

import pytest

from cutlayer.config.schema import from_mapping
from cutlayer.errors import NotNowError, RefusedError
from cutlayer.protocol.admission import Fits
from cutlayer.protocol.handshake import data_spec_of
from cutlayer.wire.messages.protobuf import message_class


def ready(**changes: Any) -> Any:
    """What an honest client of digits says."""
    fields = {
        "samples": 100,
        "test_samples": 50,
        "classes": 10,
        "class_names": [str(n) for n in range(10)],
        "shape": [1, 8, 8],
        "pixels": True,
        "name": "digits",
        "augment": "none",
        "mean": [0.2875],
        "std": [0.3542],
    }
    return message_class("Ready")(**fields | changes)


def other(**changes: Any) -> Any:
    """Data of another form."""
    return ready(shape=[20], pixels=False, mean=[0.0] * 20, std=[1.0] * 20, **changes)


def fits(clients: int = 3, **settings: Any) -> Fits:
    return Fits(from_mapping({"train": {"clients": clients, **settings}}))


def test_honest_clients_fit() -> None:
    check = fits()
    there: dict[int, Any] = {}
    for client in range(3):
        assert check(client, ready(samples=10 + client), there) == {}
        there[client] = ready(samples=10 + client)
    check.settle(data_spec_of([there[client] for client in range(3)]))
    for client in range(3):
        check(client, there[client], {})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"std": [0.0]}, "standard deviation"),
        ({"std": [-1.0]}, "standard deviation"),
        ({"std": [math.nan]}, "standard deviation"),
        ({"std": [1e-300]}, "standard deviation"),
        ({"std": [1e9]}, "standard deviation"),
        ({"std": []}, "for 1 channels"),
        ({"std": [1.0] * 5}, "for 1 channels"),
        ({"mean": [math.inf]}, "mean"),
        ({"mean": [-3e38]}, "mean"),
        ({"mean": [0.1] * 1000}, "for 1 channels"),
        ({"shape": []}, "shape"),
        ({"shape": [1, 8]}, "shape"),
        ({"shape": [1, 0, 8]}, "shape"),
        ({"shape": [1, 1 << 31, 1 << 31]}, "shape"),
        ({"shape": [1, 1 << 16, 1 << 16]}, "values"),
        ({"shape": [1] * 100}, "shape"),
        ({"classes": 0}, "classes"),
        ({"classes": 1 << 31, "class_names": []}, "classes"),
        ({"class_names": ["a"]}, "class names"),
        ({"class_names": ["a" * 1000] * 10}, "class names"),
        ({"class_names": ["\x1b[2J"] * 10}, "class names"),
        ({"name": "x" * 1000}, "name"),
        ({"name": "\x1b]0;"}, "name"),
        ({"augment": "no-such"}, "augmentation"),
        ({"size": 9}, "side"),
        ({"size": 1 << 31}, "side"),
        ({"samples": 0}, "samples"),
        ({"samples": (1 << 31) - 1}, "samples"),
        ({"samples": (1 << 32) - 1}, "samples"),
        ({"test_samples": (1 << 32) - 1}, "samples"),
    ],
)
def test_what_cannot_be_is_refused_in_the_client_s_name(changes: dict[str, Any], said: str) -> None:
    check = fits()
    with pytest.raises(RefusedError, match=f"client 1.*{said}") as error:
        check(1, ready(**changes), {})
    assert not isinstance(error.value, NotNowError)
    assert len(str(error.value)) < 500
    assert str(error.value).isprintable()
    # And it leaves no trace.
    assert check(2, ready(), {}) == {}


def test_a_meeting_place_that_is_none_is_refused_in_the_client_s_name() -> None:
    check = fits(aggregation="allreduce")
    for meeting in ("", "nowhere", "\x1b[2J:5", "h" * 5000 + ":5"):
        with pytest.raises(RefusedError, match=r"client 0.*meet"):
            check(0, ready(meeting=meeting), {})
    check(0, ready(meeting="127.0.0.1:5"), {})


def test_who_has_left_decides_nothing() -> None:
    check = fits()
    check(0, other(), {})
    # Client 0 has gone; its samples do not bind the next one in its place, either.
    check(1, ready(), {})
    check(0, ready(samples=7), {1: ready()})


def test_before_most_have_spoken_the_later_one_has_to_wait() -> None:
    check = fits()
    check(0, ready(), {})
    with pytest.raises(
        NotNowError, match=r"client 1's data do not fit: their shape is \[20\], client 0's \[1, 8, 8\]"
    ):
        check(1, other(), {0: ready()})


def test_most_clients_decide_and_a_liar_that_was_first_has_to_go() -> None:
    check = fits()
    check(0, other(), {})
    with pytest.raises(NotNowError, match="client 1's data do not fit"):
        check(1, ready(), {0: other()})
    # Two of three now say the same, whether or not the other one is back yet.
    gone = check(2, ready(), {0: other()})
    assert list(gone) == [0]
    assert "client 0's data do not fit: their shape is [20]" in gone[0]
    assert check(1, ready(), {2: ready()}) == {}
    with pytest.raises(RefusedError, match="most clients' ") as error:
        check(0, other(), {1: ready(), 2: ready()})
    assert not isinstance(error.value, NotNowError)
    # It mends its ways.
    assert check(0, ready(), {1: ready(), 2: ready()}) == {}


def test_a_client_has_one_vote_however_often_it_comes() -> None:
    check = fits()
    check(0, ready(), {})
    for _ in range(5):
        with pytest.raises(NotNowError):
            check(1, other(), {0: ready()})
    assert check(2, ready(), {0: ready()}) == {}


def test_when_the_run_has_begun_its_data_decide() -> None:
    check = fits(clients=2)
    both = [ready(samples=10), ready(samples=20)]
    check.settle(data_spec_of(both))
    with pytest.raises(RefusedError, match=r"client 0's data do not fit.*the run's"):
        check(0, other(), {})
    with pytest.raises(RefusedError, match="client 1 has 21 samples, but had 20"):
        check(1, ready(samples=21), {})
    assert check(1, ready(samples=20), {}) == {}


def test_what_a_run_keeps_of_its_data_is_never_more_than_was_checked() -> None:
    spec = data_spec_of([ready(), ready(samples=1 << 24)])
    data = spec.placeholder_data()
    assert [len(part) for part in data.parts] == [100, 1 << 24]
    assert sum(part.untyped_storage().nbytes() for part in data.parts) < 1000
    assert len(data.train) == 1


def text(**changes: Any) -> Any:
    """What an honest client with text says."""
    form = {"dtype": "int64", "shape": [16], "values": 65}
    fields = {
        "classes": 65, "class_names": [], "shape": [16], "pixels": False, "mean": [], "std": [],
        "inputs": [form], "target": form, "container": "tensor",
    }  # fmt: skip
    return ready(**fields | changes)


def table(**changes: Any) -> Any:
    """What an honest client with a table says: its features are not from 0 to 1."""
    fields = {
        "classes": 1, "class_names": [], "shape": [2], "pixels": False, "mean": [1e5, -3.0],
        "std": [2e4, 1.0],
        "inputs": [{"dtype": "float32", "shape": [2]}], "target": {"dtype": "float32"}, "container": "tensor",
    }  # fmt: skip
    return ready(**fields | changes)


def test_data_of_any_form_fit_if_they_are_alike() -> None:
    for honest in (text, table):
        check = fits()
        assert check(0, honest(), {}) == {}
        assert check(1, honest(samples=7), {0: honest()}) == {}
    with pytest.raises(NotNowError, match="shape"):
        fits()(1, table(), {0: text()})
    other = {"dtype": "int64", "shape": [16], "values": 66}
    with pytest.raises(NotNowError, match=r"number of classes|inputs"):
        fits()(1, text(inputs=[other]), {0: text()})


TOKENS = {"dtype": "int64", "shape": [16], "values": 65}


@pytest.mark.parametrize(
    ("made", "changes", "said"),
    [
        (text, {"container": "list"}, "a tensor, a tuple or a dict"),
        (text, {"inputs": []}, "0 inputs"),
        (text, {"inputs": [TOKENS] * 2, "container": "tensor"}, "2 inputs"),
        (text, {"inputs": [TOKENS] * 2, "container": "tuple"}, "two inputs have the same name"),
        (text, {"inputs": [TOKENS | {"name": str(i)} for i in range(20)], "container": "dict"}, "20 inputs"),
        (text, {"inputs": [TOKENS | {"dtype": "object"}]}, "no tensor has such a dtype"),
        (text, {"inputs": [TOKENS | {"shape": [17]}]}, "another shape"),
        (text, {"inputs": [TOKENS | {"values": 1 << 30}]}, "number of values"),
        (text, {"inputs": [TOKENS | {"name": "\x1b[2J"}]}, "name or the number"),
        (text, {"target": TOKENS | {"shape": [0]}}, r"cannot have the shape \[0\]"),
        (text, {"target": TOKENS | {"shape": [1 << 23]}}, "more than"),
        (text, {"target": TOKENS | {"values": 0}}, "outputs"),
        (text, {"classes": 64}, "64 classes, but targets that need 65 outputs"),
        (text, {"shape": [1 << 15], "inputs": [TOKENS | {"shape": [1 << 15]}]}, "sequences of 32,768 tokens"),
        (text, {"target": TOKENS | {"dtype": "int32"}}, "targets are int64, bool or float32"),
        (text, {"classes": 1, "target": {"dtype": "int64", "values": 0}}, "outputs"),
        (table, {"target": {"dtype": "float32", "shape": [1 << 17]}}, "outputs"),
        (table, {"classes": 3, "target": {"dtype": "float32", "shape": [4]}}, "outputs"),
        (table, {"mean": [1e13, 0.0]}, "mean of a channel"),
        (table, {"std": [0.0, 1.0]}, "standard deviation"),
        (table, {"mean": [math.nan, 0.0]}, "mean of a channel"),
        (table, {"classes": 3, "target": {"dtype": "int64", "values": 3}}, "need no further description"),
    ],
)
def test_forms_that_cannot_be_are_refused(made: Any, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(RefusedError, match=said):
        fits()(0, made(**changes), {})
