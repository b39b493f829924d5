"""Which settings go with `codec.memory`, and why the others do not."""

from cutlayer.config.sections import CodecConfig, TrainConfig


def memory_problem(train: TrainConfig, codec: CodecConfig) -> str | None:
    """What is wrong with settings in which both ends remember samples; or None."""
    if codec.memory == "none":
        return None
    if train.mode == "async":
        return (
            "codec.memory: in mode async a batch may be discarded as too old, and a client keeps nothing, so "
            "that both ends would remember different things; use parallel, sequential, relay or u-shaped"
        )
    if train.clients_per_step:
        return (
            "codec.memory: with train.clients_per_step clients keep nothing between rounds, also no samples; "
            "leave one of the two out"
        )
    if codec.rate != "fixed":
        return (
            "codec.memory: differences have a codec of their own, whose rate is fixed; use codec.rate = fixed"
        )
    if codec.tensors:
        return "codec.memory: remembers one tensor at a cut, and codec.tensors are for several; leave one out"
    if train.track_bias:
        return (
            "train.track_bias: looks at a step in advance, and codec.memory would remember it; leave one out"
        )
    return None
