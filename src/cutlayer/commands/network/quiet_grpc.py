"""gRPC writes remarks of its own to standard error. Ours say the same in words, so it need not."""

import os


def quiet_grpc() -> None:
    """Call this before gRPC is imported for the first time. Who sets the variable still hears everything."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
