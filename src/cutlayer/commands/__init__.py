"""The commands of the `cutlayer` program, one module each: flags in, one call, words out.

A module imports nothing heavy (PyTorch, gRPC, pydantic) before its command runs, so that help is instant.
Nothing below imports this room, and no rule of training, codecs or the network stands here.
"""
