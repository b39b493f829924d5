import pytest
import torch

from cutlayer.config.schema import from_mapping
from cutlayer.data import Augment, Dataset
from cutlayer.data.federated import FederatedData
from cutlayer.data.spec import DataSpec
from cutlayer.errors import FileError
from cutlayer.protocol.build import prepare_data


def test_the_card_goes_through_its_file(tmp_path):
    data = prepare_data(from_mapping({"train": {"clients": 3}}))
    spec = DataSpec.of(data)
    spec.write(tmp_path)
    assert DataSpec.read(tmp_path) == spec
    assert spec.preprocess() == data.augment


def test_placeholder_data_have_the_form_of_the_data():
    data = prepare_data(from_mapping({"train": {"clients": 3}}))
    blank = DataSpec.of(data).placeholder_data()
    assert blank.train.shape == data.train.shape
    assert [len(part) for part in blank.parts] == [len(part) for part in data.parts]
    assert DataSpec.of(blank) == DataSpec.of(data)


def test_features_are_not_taken_for_pixels():
    train = Dataset(torch.rand(10, 6), torch.arange(10) % 2, 2)
    data = FederatedData(train, train, Augment.of(train), tuple(torch.arange(10).split(5)))
    blank = DataSpec.of(data).placeholder_data().train
    assert blank.images.dtype == torch.float32
    assert blank.shape == (6,)


@pytest.mark.parametrize("text", ["", "[]", '{"name": "x"}'])
def test_a_damaged_card_is_named(tmp_path, text):
    with pytest.raises(FileError, match=r"is .* a run"):
        DataSpec.read(tmp_path)
    (tmp_path / "data.json").write_text(text)
    with pytest.raises(FileError, match="damaged"):
        DataSpec.read(tmp_path)
