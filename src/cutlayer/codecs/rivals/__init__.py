"""Methods of other authors, as codecs on the same wire, to compare with.

One file a method; docs/codecs/rivals.md says what each paper leaves open and what was assumed. They are
plain NumPy, without compiled kernels of their own. Policies around codecs (`aqsgd`, `splitcom`) need PyTorch.
"""
