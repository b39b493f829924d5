"""A server and three clients, each a process of its own: the same bits as in one process."""

import pytest

U = ["train.mode=u-shaped", 'model.cut=["layer1", "fc"]']


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["train.server_batching=fused", "codec.sync=qu:bits=8"],
        ["train.mode=sequential", "train.sync=3"],
        ["train.mode=relay", "train.sync=2"],
        U,
        [*U, "train.server_batching=fused", "train.sync=epoch", "train.weighting=samples"],
        ["train.clients_per_step=2", "train.sync=2", "train.weighting=samples"],
    ],
    ids=lambda s: " ".join(s) or "parallel",
)
def test_every_mode_gives_the_same_bits_as_one_process(cluster, network, settings: list[str]) -> None:
    server = cluster.serve(*settings)
    clients = [cluster.join(number) for number in range(3)]
    loop = cluster.train(*settings)
    assert server.wait() == 0, server.text
    assert [client.wait() for client in clients] == [0, 0, 0], [client.text for client in clients]
    assert network.plain(cluster.folder / "net") == network.plain(loop)
    network.same_weights(loop, cluster.folder / "net")
