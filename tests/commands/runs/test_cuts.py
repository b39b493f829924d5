import json

import pytest

from cutlayer.errors import CutlayerError, ModelError


def rows(run, *words):
    result = run("cuts", *words, "--json")
    assert result.exit_code == 0, result.output
    return {row["cut"]: row for row in json.loads(result.stdout)}


def test_the_papers_cuts_are_named_with_shape_and_work(run):
    found = rows(run, "resnet18", "--codec", "ms:ratio=0.99,bits=2")
    medium = next(row for row in found.values() if row["name"] == "medium")
    assert medium["cut"] == "layer2"
    assert medium["shape"] == [128, 16, 16]
    assert medium["raw_bytes"] == 4 * 128 * 16 * 16
    assert medium["raw_bytes"] / medium["codec_bytes"] == pytest.approx(32 / 2.32, rel=1e-3)
    totals = {row["client_parameters"] + row["server_parameters"] for row in found.values()}
    assert totals == {11_173_962}
    assert len({row["client_madds"] + row["server_madds"] for row in found.values()}) == 1


def test_negative_values_cost_the_codec_more(run):
    found = rows(run, "resnet18", "--width", 4, "--codec", "ms")
    assert found["bn1"]["codec_bytes"] > found["relu"]["codec_bytes"]
    assert (found["bn1"]["signed"], found["relu"]["signed"]) == (True, False)


def test_a_table_for_people(run):
    result = run("cuts", "tiny", "--width", 8, "--codec", "sp")
    assert "layer2 (medium)" in result.stdout
    assert "8x4x4" in result.stdout


def test_help_teaches_with_examples(run):
    assert "cutlayer cuts vgg19 --codec" in run("cuts", "--help").stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["resnet19"], "Did you mean 'resnet18'"),
        (["resnet18", "--input", "3x32"], "does not run on an example"),
        (["resnet18", "--input", "big"], "write it as 3x32x32"),
        (["resnet18", "--codec", "mss"], "no codec 'mss'"),
        (["no.such:model"], "no module 'no'"),
    ],
)
def test_mistakes_are_named(run, words, says):
    result = run("cuts", *words)
    assert isinstance(result.exception, CutlayerError)
    assert says in str(result.exception)


def test_a_users_own_model_need_not_take_images(run, tmp_path, monkeypatch):
    (tmp_path / "my_nets.py").write_text(
        "from torch import nn\n"
        "def mlp(classes):\n"
        "    return nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, classes))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = rows(run, "my_nets:mlp", "--input", "20", "--codec", "qu")
    assert found["1"]["shape"] == [8]
    with pytest.raises(ModelError):
        raise run("cuts", "my_nets:absent").exception


def test_all_tensors_of_a_cut_are_shown(run, tmp_path, monkeypatch):
    (tmp_path / "skip_net.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "class Skip(nn.Module):\n"
        "    def __init__(self, classes):\n"
        "        super().__init__()\n"
        "        self.a, self.b, self.c = nn.Linear(20, 8), nn.Linear(8, 4), nn.Linear(12, classes)\n"
        "    def forward(self, x):\n"
        "        a = self.a(x)\n"
        "        return self.c(torch.cat([a, self.b(a)], 1))\n"
    )
    monkeypatch.chdir(tmp_path)
    found = rows(run, "skip_net:Skip", "--input", "20", "--codec", "qu:bits=4")
    assert found["a"]["others"] == []
    assert found["b"]["others"] == [{"name": "a", "shape": [8], "dtype": "float32"}]
    assert found["b"]["elements"] == 12
    assert found["b"]["raw_bytes"] == 48
    assert found["b"]["codec_bytes"] == 6
    assert "4 + a 8" in run("cuts", "skip_net:Skip", "--input", "20").stdout
