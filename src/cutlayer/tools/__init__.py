"""Measurements that help to choose: `advise` (cut and codec for a link), `bench` (codecs on one tensor).

Tools build on codecs, models and links. They know nothing of running training or of the command line.
"""
