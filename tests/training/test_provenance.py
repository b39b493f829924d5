import getpass
import json
import platform
from pathlib import Path

from cutlayer.training.provenance import provenance


def test_it_says_what_made_the_result():
    found = provenance(7, ["cutlayer", "train", "--epochs", "3"])
    assert found["seed"] == 7
    assert found["command"] == "cutlayer train --epochs 3"
    assert found["packages"]["torch"]
    assert found["cores"] >= 1
    assert found["kernels"] in ("native", "pytorch")
    json.dumps(found)


def test_it_tells_no_directories_hosts_or_users():
    words = ["/opt/venv/bin/cutlayer", "train", str(Path.home() / "a.toml"), f"--out={Path.home()}/runs/x/"]
    found = provenance(0, [*words, "~/data", "--set", "data.root=/data/images", "--data", "cifar10:/me/c10"])
    assert found["command"] == "cutlayer train a.toml --out=x data --set data.root=images --data cifar10:c10"
    text = json.dumps(found)
    assert str(Path.home()) + "/" not in text
    assert platform.node() not in found["command"]
    assert getpass.getuser() not in found["command"].split()
    found = provenance(0, ["../venv/bin/cutlayer", "train", "runs/a.toml", "--root=../../data"])
    assert found["command"] == "cutlayer train runs/a.toml --root=data"


def test_the_commit_is_that_of_the_checkout():
    found = provenance(0)
    assert found["commit"] is None or len(found["commit"]) == 40
