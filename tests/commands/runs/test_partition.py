import json

import pytest

from cutlayer.errors import DataError, FileError


def test_the_table_shows_each_client(run):
    out = run("partition", "--clients", 4).stdout
    assert "1,438 training samples of digits" in out
    assert len([line for line in out.splitlines() if line.strip()[:1].isdigit()]) == 5


def test_many_clients_are_shortened(run):
    assert "..." in run("partition", "--clients", 60).stdout


def test_many_classes_are_summed_up(run, tmp_path, monkeypatch):
    (tmp_path / "my_data.py").write_text(
        "import torch\n"
        "from cutlayer.data import Dataset\n"
        "def many():\n"
        "    d = Dataset(torch.rand(200, 3), torch.arange(200) % 50, 50)\n"
        "    return d, d\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert "largest class" in run("partition", "--data", "my_data:many", "--clients", 3).stdout


def test_json_has_a_row_a_client(run):
    found = json.loads(run("partition", "--clients", 3, "--partition", "shard:shards=2", "--json").stdout)
    assert len(found["counts"]) == 3
    assert sum(map(sum, found["counts"])) == 1438


def test_a_plot_is_drawn(run, tmp_path):
    pytest.importorskip("matplotlib")
    assert run("partition", "--plot", tmp_path / "p.svg").exit_code == 0
    assert (tmp_path / "p.svg").stat().st_size > 1000
    assert isinstance(run("partition", "--plot", tmp_path / "no" / "p.svg").exception, FileError)


def test_mistakes_are_named(run):
    assert isinstance(run("partition", "--partition", "fair").exception, DataError)
    assert isinstance(run("partition", "--clients", 5000).exception, DataError)
