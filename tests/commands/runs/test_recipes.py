import json
import tomllib

from cutlayer.config.recipes import recipe
from cutlayer.config.schema import from_mapping
from cutlayer.errors import ConfigError


def test_all_recipes_are_listed(run):
    out = run("recipes").stdout
    assert "paper/resnet34-imagenet-deep-rt" in out
    assert "demo/digits-ms" in out


def test_a_pattern_selects(run):
    names = json.loads(run("recipes", "paper/*-medium-ms", "--json").stdout)
    assert len(names) == 3


def test_one_recipe_is_shown_as_a_file_that_trains_the_same(run):
    out = run("recipes", "paper/resnet18-cifar100-medium-rt").stdout
    assert from_mapping(tomllib.loads(out)) == from_mapping(recipe("paper/resnet18-cifar100-medium-rt"))
    assert json.loads(run("recipes", "demo/digits-sp", "--json").stdout) == recipe("demo/digits-sp")


def test_mistakes_are_named(run):
    assert "Did you mean demo/digits-ms" in str(run("recipes", "demo/digit-ms").exception)
    assert isinstance(run("recipes", "nothing/*").exception, ConfigError)
