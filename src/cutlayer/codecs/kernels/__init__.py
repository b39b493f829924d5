"""The loops over elements. `interface` declares them, `dispatch` chooses native or reference.

`native*.py` pass addresses and thread counts to the compiled extension; `codecs.reference` does the same in
PyTorch. Kernels must not know codec objects, spec strings or frame headers: buffers and numbers in, buffers
out.
"""
