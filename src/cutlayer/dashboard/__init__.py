"""The dashboard: a page on a run that goes on or has ended.

It reads the files that a run writes and nothing else, in a process of its own. So it can neither slow the run
nor change it. It must not import PyTorch.
"""
