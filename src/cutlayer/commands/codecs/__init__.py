"""Commands on codecs, tensors and frames in files: codecs, bench, encode, decode, inspect.

They parse flags, call `cutlayer.codecs` or `cutlayer.tools`, and print. They know nothing of models that are
split, of runs or of the network.
"""
