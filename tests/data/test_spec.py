import pytest
import torch

from cutlayer.config.schema import from_mapping
from cutlayer.data import ArrayDataset, Augment, Dataset, Statistics
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


FORMS = {
    "regression": ArrayDataset(torch.rand(10, 6), torch.rand(10)),
    "segmentation": ArrayDataset(torch.rand(10, 3, 4, 4), torch.zeros(10, 4, 4).long(), classes=5),
    "language": ArrayDataset(torch.zeros(10, 8).long(), torch.zeros(10, 8).long(), classes=9, tokens=9),
    "several": ArrayDataset(
        {"a": torch.rand(10, 2), "b": torch.ones(10, 3).bool()}, torch.ones(10, 4).bool()
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_any_form_goes_through_file_and_placeholder(tmp_path, name):
    train = FORMS[name]
    data = FederatedData(train, train, Augment.of(train), tuple(torch.arange(10).split(5)))
    spec = DataSpec.of(data)
    spec.write(tmp_path)
    assert DataSpec.read(tmp_path) == spec
    assert spec.form == train.form
    blank = spec.placeholder_data()
    assert blank.train.form == train.form
    assert DataSpec.of(blank) == spec
    train.form.check(*blank.train.batch(torch.tensor([0])), "the placeholder")


def test_statistics_of_a_table_standardise_what_others_have():
    train = ArrayDataset(
        torch.tensor([[1.0, 10], [3, 30]]), torch.rand(2), statistics=Statistics((2, 20), (1, 10))
    )
    data = FederatedData(train, train, Augment.of(train), (torch.arange(2),))
    scaled = DataSpec.of(data).preprocess().test(torch.tensor([[1.0, 10], [3, 30]]))
    assert scaled.tolist() == [[-1, -1], [1, 1]]
