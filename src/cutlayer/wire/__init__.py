"""Bytes between clients and server: messages, transports, credentials, link shaping, metering.

`messages/` has the bytes, `grpc/` the network, `security/` TLS and tokens, `link/` simulated links. This room
must not know tensors, models or codecs.
"""
