import json

import pytest
import torch
from safetensors.torch import save_file

from cutlayer.errors import CutlayerError

FAST = ("--device-speed", "1gmadds", "--server-speed", "100gmadds", "--width", 4)


def test_advice_and_the_table_behind_it(run):
    words = ("advise", "tiny", "--link", "20mbit,30ms", *FAST, "--error", 0.2)
    found = json.loads(run(*words, "--json").stdout)
    best = found["advice"]
    assert best["fits"]
    assert best["seconds"] == min(c["seconds"] for c in found["choices"] if c["error"] <= 0.2)
    assert any("untrained" in text for text in found["assumptions"])
    table = run(*words).stdout
    assert f"Cut at {best['cut']} and send with {best['codec']}" in table
    assert "Assumed: " in table


def test_given_feature_maps_decide_the_errors(run, tmp_path):
    path = tmp_path / "maps.safetensors"
    save_file({"layer2": torch.ones(8, 4, 4, 4)}, path)
    words = ("advise", "tiny", "--link", "1mbit", *FAST, "--features", path, "--codec", "qu:bits=1")
    (choice,) = json.loads(run(*words, "--json").stdout)["choices"]
    assert (choice["cut"], choice["error"]) == ("layer2", 0)


def test_a_run_is_cut_as_it_was_trained(run, trained):
    found = run("advise", trained, "--link", "20mbit", *FAST[:4], "--codec", "dense", "--json")
    assert found.exit_code == 0, found.output
    assert any("at step" in text for text in json.loads(found.stdout)["assumptions"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["tiny", "--link", "fast"], "is not understood"),
        (["tiny", "--link", "1mbit", "--device-speed", "quick"], "5gmadds"),
        (
            ["tiny", "--link", "1mbit", *FAST, "--codec", "qu:bits=1", "--error", "0"],
            "no codec keeps the error",
        ),
        (["tinyy", "--link", "1mbit"], "no model 'tinyy'"),
        (["tiny", "--link", "1mbit", "--error", "-1"], "--error"),
        (["tiny", "--link", "1mbit", "--features", "absent.safetensors"], "absent.safetensors"),
    ],
)
def test_mistakes_are_named(run, words, says):
    result = run("advise", *words)
    assert isinstance(result.exception, CutlayerError)
    assert says in str(result.exception)
