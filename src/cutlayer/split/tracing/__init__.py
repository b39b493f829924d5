"""Tracing a model by running it on an example, for models that torch.fx cannot trace symbolically."""
