"""Server ranks under torchrun: one run, several processes, each with its share of the clients.

The leader runs the trainer and gives commands; the others follow. Sums over ranks go by torch.distributed.
It must not know run directories, records or checkpoint files.
"""
