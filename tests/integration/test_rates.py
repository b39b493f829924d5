"""Rates and error feedback between processes: clients measure their own links, and nothing is forgotten."""

AUTO = ("codec.up=qu", "codec.rate=auto:min=2,max=8", "data.partition=even")


def test_clients_choose_their_rates_over_the_network(cluster, network) -> None:
    # The second client's uplink takes seconds where the others' takes nothing that could be measured.
    settings = (*AUTO, "train.epochs=1", "train.clients=2", "train.batch_size=32", "model.width=16")
    server = cluster.serve(*settings, "model.cut=shallow")
    clients = [
        cluster.join(0),
        cluster.join(1, "--link", "up=100kbit,down=100mbit", "--rate", "auto:min=1,max=8"),
    ]
    assert server.wait() == 0, server.text
    assert [client.wait() for client in clients] == [0, 0], [client.text for client in clients]
    steps = [record for record in cluster.records() if record["kind"] == "step"]
    first, last = steps[0]["bits"], steps[-1]["bits"]
    assert (int(first["0"]), int(first["1"])) == (2, 1)  # each begins with its own lowest rate
    assert last["0"] > last["1"]
    assert int(last["1"]) == 1


def test_a_client_cannot_choose_what_the_server_fixes(cluster, network) -> None:
    server = cluster.serve("train.clients=1", "data.partition=even")
    client = cluster.join(0, "--rate", "auto")
    assert client.wait() == 1
    assert "start it with --rate auto" in client.text
    assert "Traceback" not in client.text + server.text


def test_rates_in_stages_are_the_same_over_the_network(cluster, network) -> None:
    """Clients know where in the run they are: the same bits as in one process."""
    settings = ("codec.up=ems:bpe=4", "codec.rate=until:50%=0.5", "train.epochs=2", "train.clients=2")
    whole = cluster.train(*settings)
    server = cluster.serve(*settings)
    clients = [cluster.join(number) for number in range(2)]
    assert server.wait() == 0, server.text
    assert [client.wait() for client in clients] == [0, 0], [client.text for client in clients]
    steps = [record for record in cluster.records() if record["kind"] == "step"]
    # Frames of a batch of eight are mostly header.
    assert steps[0]["bits"]["1"] < 1.5 < 2.5 < steps[-1]["bits"]["1"]
    assert network.plain(cluster.folder / "net") == network.plain(whole)
    network.same_weights(whole, cluster.folder / "net")


def test_memories_survive_a_resume_over_the_network(cluster, network) -> None:
    """Half of the run, then the rest from the checkpoint: the same bits as in one process without a break."""
    settings = ("codec.sync=sp:ratio=0.9", "train.checkpoint_every=3", "train.epochs=1", "train.clients=2")
    whole = cluster.train(*settings)
    server = cluster.serve(*settings)
    clients = [cluster.join(number) for number in range(2)]
    network.until(lambda: len(cluster.records()) >= 5, "five records")
    server.kill()
    again = cluster.serve(*settings, flags=("--resume",))
    assert again.wait() == 0, again.text
    assert [client.wait() for client in clients] == [0, 0], [client.text for client in clients]
    assert network.plain(cluster.folder / "net") == network.plain(whole)
    network.same_weights(whole, cluster.folder / "net")
