"""What a model is trained for: how targets travel, the loss, and the metrics. Today classification alone.

A task knows outputs and targets. It must not know models, clients, servers or files.
"""
