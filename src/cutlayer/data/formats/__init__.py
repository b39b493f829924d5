"""Readers of data on disk: CIFAR's archives, Parquet, image folders and scikit-learn's digits.

A reader turns files into one `Dataset` split. It knows nothing of clients, augmentation or training, fetches
nothing from the network, and runs nothing that a file contains.
"""
