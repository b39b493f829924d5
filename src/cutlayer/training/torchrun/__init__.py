"""Runs whose server has several processes under torchrun."""
