"""Who averages what clients share: the server, an aggregator that runs alone, or the clients themselves.

`base.py` is the interface. This room must not know data, models or how the server trains.
"""
