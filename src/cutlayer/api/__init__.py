"""The Python interface: `cutlayer.train`, `load_run`, `serve` and `join`, with objects instead of strings.

It turns objects into settings and what settings cannot say (`RunObjects`), and calls the rooms below. The
command line does not use it; both end in the same functions.
"""
