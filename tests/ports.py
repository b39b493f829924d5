"""Ports for tests whose programs must be told one."""

import random
import socket


def free_port() -> int:
    """A port on loopback that nobody has. It is below those that outgoing connections take by themselves."""
    while True:
        port = random.SystemRandom().randrange(20000, 30000)
        with socket.socket() as found:
            try:
                found.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
