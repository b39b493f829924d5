"""Experiments on trained models, without training under compression: error, bounds, time, gradient bias.

Each has a module that measures (`error`, `bounds`, `speed`, `bias`) and one that draws the conclusions
(`*_findings`).
"""
