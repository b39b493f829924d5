"""Bytes, never models: messages, metering, link shaping, transports."""
