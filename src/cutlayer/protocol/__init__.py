"""What both ends of a run must derive alike: step plan, learning rates, codecs, error feedback, handshake.

`boundary.py` is the one place where a client's messages are received and checked. This room must not know
how the server computes a step, nor where anything is stored.
"""
