"""What a client sends is held against what both ends have derived, tensor by tensor."""

import pytest
import torch

from cutlayer.codecs import codec
from cutlayer.errors import LimitError, MessageError
from cutlayer.protocol.run_codecs import RunCodecs
from cutlayer.protocol.tensor_forms import (
    TensorForm,
    describe,
    elements_of,
    forms_at,
    gradient_forms,
    misfit,
    most_elements,
)

BATCH = {"hidden": torch.randn(2, 3, 4), "mask": torch.tensor([[1, 0, 1], [1, 1, 1]])}
FORMS = {"hidden": TensorForm((3, 4)), "mask": TensorForm((3,), torch.int64)}
FLOAT = torch.float32


def codecs(**tensors: str) -> RunCodecs:
    dense = codec("dense")
    return RunCodecs(dense, dense, dense, 0, tensors={name: codec(spec) for name, spec in tensors.items()})


def test_forms_of_a_batch() -> None:
    assert forms_at(BATCH) == FORMS
    assert forms_at(BATCH["hidden"]) == (3, 4)
    assert gradient_forms(FORMS) == {"hidden": TensorForm((3, 4))}
    assert elements_of(FORMS) == 15
    assert most_elements(FORMS, 2) == {"hidden": 24, "mask": 6}
    assert describe(FORMS, 2, FLOAT) == "hidden [2, 3, 4] of torch.float32, mask [2, 3] of torch.int64"
    assert misfit(BATCH, FORMS, 2, FLOAT) is None


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (BATCH["hidden"], "one tensor"),
        ({"hidden": BATCH["hidden"]}, "several tensors, hidden"),
        ({**BATCH, "mask": BATCH["mask"].bool()}, "mask of shape [2, 3] of torch.bool"),
        ({**BATCH, "hidden": torch.randn(2, 3, 5)}, "hidden of shape [2, 3, 5]"),
        ({**BATCH, "hidden": torch.randn(3, 3, 4)}, "hidden of shape [3, 3, 4]"),
    ],
)
def test_misfits(found: object, words: str) -> None:
    assert words in misfit(found, FORMS, 2, FLOAT)


def test_a_single_tensor_is_one_frame_as_ever() -> None:
    run, x = codecs(), torch.randn(2, 5)
    data = run.encode(run.up, x, "up", 0, 0, 0)
    assert data == run.up.encode(x)
    assert torch.equal(run.decode_cut(data, 10), x)


def test_each_tensor_has_its_codec_and_integers_none() -> None:
    run = codecs(hidden="qu:bits=4")
    found = run.decode_cut(run.encode(run.up, BATCH, "up", 0, 0, 0), {"hidden": 24, "mask": 6})
    assert list(found) == list(BATCH)
    assert torch.equal(found["mask"], BATCH["mask"])
    assert found["hidden"].unique().numel() <= 16
    assert torch.equal(found["hidden"], run.decode_cut(run.encode_evaluation(run.up, BATCH))["hidden"])
    # Gradients travel under the codec of their direction.
    gradient = {"hidden": BATCH["hidden"]}
    back = run.decode_cut(run.encode(run.down, gradient, "down", 0, 0, 0))
    assert torch.equal(back["hidden"], gradient["hidden"])


def test_random_codecs_draw_for_each_tensor_apart() -> None:
    run = codecs(a="rk:ratio=0.5", b="rk:ratio=0.5")
    x = torch.rand(1, 64) + 1
    found = run.decode_cut(run.encode(run.up, {"a": x, "b": x}, "up", 0, 0, 0))
    assert not torch.equal(found["a"], found["b"])


def test_limits_hold_before_anything_is_made() -> None:
    run = codecs()
    data = run.encode(run.up, BATCH, "up", 0, 0, 0)
    with pytest.raises(LimitError):
        run.decode_cut(data, {"hidden": 23, "mask": 6})
    with pytest.raises(LimitError):
        run.decode_cut(data, 29)
    assert len(run.decode_cut(data, 30)) == 2
    with pytest.raises(MessageError, match="tensors named hidden, mask, where hidden cross the cut"):
        run.decode_cut(data, {"hidden": 24})
    with pytest.raises(MessageError, match="one tensor, where several"):
        run.decode_cut(run.up.encode(BATCH["hidden"]), {"hidden": 24})
