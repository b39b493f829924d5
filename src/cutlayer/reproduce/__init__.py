"""The paper's experiments: each computes its cells once, keeps them, and draws tables, plots and claims.

A cell is one entry of an experiment's table, such as one codec on one feature map. Experiments use training
as any user does; training knows nothing of them.
"""
