"""What a client says of data of any form arrives as the same spec; of plain data it is said as before."""

from collections.abc import Callable

import pytest
import torch

from cutlayer.config.schema import Config
from cutlayer.data import ArrayDataset, Augment, FederatedData, Statistics
from cutlayer.data.spec import DataSpec
from cutlayer.protocol.admission import problem
from cutlayer.protocol.build import prepare_data
from cutlayer.protocol.handshake import data_spec_of, describe, settings_for_clients
from cutlayer.wire.messages.protobuf import message_class

IDS = torch.zeros(6, 4, dtype=torch.int64)
DATA = {
    "table": ArrayDataset(torch.rand(6, 2), torch.rand(6), statistics=Statistics((5.0, -2e5), (3.0, 1e4))),
    "tokens": ArrayDataset(IDS, IDS, classes=9, tokens=9, class_names=tuple("abcdefghi")),
    "several": ArrayDataset({"ids": IDS, "mask": IDS == 0}, IDS == 0, tokens=9),
    "tuple": ArrayDataset((IDS, torch.rand(6, 3).half()), torch.rand(6, 2, 2)),
}


@pytest.mark.parametrize("name", DATA)
def test_a_form_arrives_as_it_is(configure: Callable[..., Config], name: str) -> None:
    train = DATA[name]
    data = FederatedData(train, train, Augment.of(train), (torch.arange(6),))
    sent = describe(data, 0, settings_for_clients(configure())).SerializeToString()
    spec = data_spec_of([message_class("Ready").FromString(sent)])
    assert spec == DataSpec.of(data)
    assert spec.form == train.form
    assert problem(spec) is None


def test_plain_data_are_described_as_they_always_were(configure: Callable[..., Config]) -> None:
    config = configure()
    ready = describe(prepare_data(config), 0, settings_for_clients(config))
    assert not ready.HasField("target")
    assert not ready.inputs
    assert not ready.container
