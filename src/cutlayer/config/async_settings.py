"""Which settings go with mode `async`, and why the others do not."""

from cutlayer.config.sections import CodecConfig, RobustConfig, TrainConfig


def async_problem(train: TrainConfig, codec: CodecConfig, robust: RobustConfig) -> str | None:
    """What is wrong with the settings of mode async, or with its settings in another mode; or None."""
    if train.mode != "async":
        given = [name for name in ("buffer", "max_staleness") if getattr(train, name) is not None]
        return f"train.{given[0]}: is of mode async, not {train.mode}; leave it out" if given else None
    if train.arrivals > train.clients:
        return (
            f"train.buffer: {train.arrivals} arrivals of {train.clients} clients, of which each has one "
            f"batch on its way; use at most {train.clients}"
        )
    if train.sync != "step":
        return (
            "train.sync: in mode async a client gets the newest weights before each of its batches, so there "
            "is no period after which weights are averaged; use sync = step"
        )
    if train.aggregation != "server":
        return (
            f"train.aggregation: {train.aggregation} needs all clients at the same time, and in mode async "
            "nobody waits for all; use server"
        )
    if train.server_batching == "fused":
        return (
            "train.server_batching: in mode async batches come one by one, so there is nothing to fuse; use "
            "per_client"
        )
    if robust.mean != "mean":
        return (
            f"robust.mean: a {robust.mean} of gradients of different age cannot weight them; in mode async "
            "use mean, with clip_shared and clip_gradient to bound what one client does"
        )
    if codec.follows_link:
        return (
            "codec.rate: a rate that follows the link keeps its measurements with the client, and in mode "
            "async a client keeps nothing; use fixed or until:..."
        )
    if codec.sync not in ("none", "dense") and codec.feedback:
        return (
            "codec.feedback: what a lossy codec.sync drops is kept with the client, and in mode async a "
            "client keeps nothing; use feedback = false, or sync = none"
        )
    if train.track_bias:
        return "train.track_bias: measures a step that all clients take together; mode async has none"
    return None
