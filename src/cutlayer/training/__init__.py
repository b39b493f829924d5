"""Runs: the Trainer around a split server, and the run's directory: checkpoints, records, settings.

`train`, `serve` and `aggregate` put a run together from its configuration; nothing below this room reads one
but `protocol/build.py` and `client/build.py`. It must not know commands, reports or inference.
"""
