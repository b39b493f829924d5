"""Mode async: the server updates after K arrivals, whoever they are of, and waits for nobody else.

One mode function serves both: a network, where arrivals come when they come, and a simulation in one process,
where a virtual clock with a speed for each client decides their order.
"""
