import pytest

from cutlayer.config import recipes
from cutlayer.config.schema import from_mapping
from cutlayer.errors import ConfigError
from cutlayer.models import MODELS


def test_every_recipe_is_a_valid_configuration():
    for name in recipes.names():
        config = from_mapping(recipes.recipe(name), name)
        assert config.model.name in MODELS
        assert config.train.clients == 10


def test_the_paper_has_three_models_three_cuts_and_five_policies():
    found = recipes.names("paper/*")
    assert len(found) == 45
    assert "paper/vgg19-cifar10-medium-ms" in found
    assert len(recipes.names("demo/digits-*")) == 5


@pytest.mark.parametrize(
    ("name", "train"),
    [
        ("vgg19-cifar10-deep-none", {"epochs": 200, "schedule": "cosine", "weight_decay": 5e-4}),
        ("resnet18-cifar100-deep-rt", {"epochs": 200, "milestones": [60, 120, 160], "gamma": 0.2}),
        ("resnet34-imagenet-shallow-qu", {"epochs": 90, "period": 30, "gamma": 0.1, "weight_decay": 1e-4}),
    ],
)
def test_the_schedules_of_the_papers_code(name, train):
    settings = recipes.recipe(f"paper/{name}")["train"]
    assert settings["lr"] == 0.1
    assert settings["momentum"] == 0.9
    assert train.items() <= settings.items()


def test_the_papers_policies_have_its_compression_rates():
    from cutlayer import codec

    bits = {
        name: codec(spec).bits_per_element((10, 64, 32, 32))
        for name, spec in recipes.POLICIES.items()
        if name != "none"
    }
    assert 1 - bits["ms"] / 32 == pytest.approx(0.9275, abs=1e-4)
    assert 1 - bits["sp"] / 32 == pytest.approx(0.9275, abs=1e-4)
    assert 1 - bits["rt"] / 32 == pytest.approx(0.9275, abs=1e-4)
    assert 1 - bits["qu"] / 32 == 0.90625


def test_a_recipe_belongs_to_its_caller():
    recipes.recipe("demo/digits-ms")["train"]["epochs"] = 1
    assert recipes.recipe("demo/digits-ms")["train"]["epochs"] != 1


def test_an_unknown_recipe_suggests_the_nearest():
    with pytest.raises(ConfigError, match=r"Did you mean paper/vgg19-cifar10-medium-ms"):
        recipes.recipe("paper/vgg19-cifar10-medum-ms")
