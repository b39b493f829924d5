"""Training that diverges at a client: both sides say so, and the last checkpoint is good."""

import re


def test_a_client_that_meets_nan_ends_the_run_with_a_good_checkpoint(cluster, network) -> None:
    server = cluster.serve("train.checkpoint_every=1", "train.lr=1000", "train.momentum=0")
    clients = [cluster.join(number) for number in range(3)]
    assert server.wait() == 1, server.text
    assert re.search(r"training diverged (at|before) step \d+: .*client \d", server.text)
    assert re.search(
        r"The last good checkpoint, of step \d+, is kept; try a lower learning rate", server.text
    )
    for client in clients:
        assert client.wait() == 1, client.text
        # It found out itself, or was told.
        assert "training diverged" in client.text or "at most 1e+06 is accepted" in client.text
        assert "trying again" not in client.text
    assert any("learning rate" in client.text for client in clients)
    assert all("Traceback" not in process.text for process in (server, *clients))
    kept = network.checkpoint.latest(cluster.folder / "net" / "checkpoints")
    assert kept is not None
    assert all(bool((t.abs() <= 1e6).all()) for t in kept.tensors.values() if t.is_floating_point())
