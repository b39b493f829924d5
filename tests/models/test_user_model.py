"""Models of a user's own, by name: how they are built, and which of them may be imported."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from cutlayer.errors import ModelError
from cutlayer.models import ANY_MODEL, AllowedModels, build, cut_module

OWN = """
import torch
from torch import nn

class Net(nn.Sequential):
    def __init__(self, classes, image_size=1):
        super().__init__(nn.Flatten(), nn.Linear(image_size * image_size, classes))

class Space:
    @staticmethod
    def plain():
        return nn.Linear(2, 2)

def everything(**settings):
    assert set(settings) == {"classes", "width", "in_channels", "image_size"}
    return nn.Linear(settings["width"], settings["classes"])

def needs(depth):
    return nn.Linear(depth, 1)

def number():
    return 7

instance = nn.Linear(1, 1)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "own_models.py").write_text(OWN)
    (tmp_path / "broken_models.py").write_text("1 / 0")
    (tmp_path / "needy_models.py").write_text("import no_such_dependency")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("own_models", "broken_models", "needy_models"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("own")
def test_own_model() -> None:
    net = build("own_models:Net", classes=3, image_size=4, allowed=ANY_MODEL)
    assert net.get_parameter("1.weight").shape == (3, 16)
    assert isinstance(build("own_models:Space.plain", classes=3, allowed=ANY_MODEL), nn.Linear)
    again = build("own_models:everything", classes=3, width=8, allowed=ANY_MODEL)
    assert again.get_parameter("weight").shape == (3, 8)
    same = build("own_models:everything", classes=3, width=8, allowed=ANY_MODEL)
    assert torch.equal(again.get_parameter("weight"), same.get_parameter("weight"))


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("no_such_models:Net", "no module 'no_such_models'.*PYTHONPATH"),
        ("needy_models:Net", "no module 'no_such_dependency'"),
        ("broken_models:Net", "importing 'broken_models' failed: ZeroDivisionError"),
        ("own_models:Nett", "has no 'Nett'. It has: Net, Space, everything"),
        ("own_models:needs", r"'own_models:needs' could not build.*depth.*classes, width"),
        ("own_models:number", "returned a int, not an nn.Module"),
        ("own_models:instance", "is a Linear, not a function or class"),
        ("own_models:", "not of the form package.module:factory"),
        (":Net", "not of the form package.module:factory"),
        ("..relative:Net", "not of the form package.module:factory"),
    ],
)
def test_own_model_that_cannot_be_built(spec: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        build(spec, classes=3, allowed=ANY_MODEL)


@pytest.mark.usefixtures("own")
def test_only_what_is_allowed_is_imported() -> None:
    for allowed in (None, AllowedModels(), AllowedModels.of(["other_models:Net", "own_models:everything"])):
        with pytest.raises(ModelError, match=r"nothing was imported.*--allow-model own_models:Net"):
            build("own_models:Net", classes=3, allowed=allowed)
    assert "own_models" not in sys.modules
    assert build("own_models:Net", classes=3, allowed=AllowedModels.of(["own_models:Net"])) is not None
    with pytest.raises(ModelError, match=r"'rm -rf' cannot be allowed.*package.module:factory"):
        AllowedModels.of(["own_models:Net", "rm -rf"])


def test_a_factory_that_is_at_hand_needs_no_import() -> None:
    given = AllowedModels.of(at_hand={"mine": lambda classes: nn.Linear(2, classes), "tiny": nn.Identity})
    assert build("mine", classes=3, allowed=given).get_parameter("weight").shape == (3, 2)
    # A built-in name means the built-in model, whoever says otherwise.
    assert not isinstance(build("tiny", classes=3, allowed=given), nn.Identity)
    with pytest.raises(ModelError, match="has no cut 'deep'"):
        cut_module("mine", "deep")


@pytest.mark.parametrize("width", [5_000, 1 << 40])
def test_a_model_that_would_exhaust_memory_is_not_built_at_a_servers_word(width: int) -> None:
    with pytest.raises(ModelError, match=f"width {width} (has .* parameters; at most|cannot be built)"):
        build("resnet18", classes=10, width=width, allowed=AllowedModels())
