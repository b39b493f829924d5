"""Methods of other authors, as codecs on the same wire, to compare with.

One file a method; docs/codecs/rivals.md says what each paper leaves open and what was assumed. They are
plain PyTorch and NumPy, without compiled kernels of their own.
"""
