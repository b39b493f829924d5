"""Halves of models as ONNX files, for devices without PyTorch (`device`): for predictions, and for training.

`inference_half` exports what a run has trained, with its pre-processing; `quantize` makes INT8 of it.
`training_half` exports a configuration: `trace` records the forward pass on a `tape`, and `rules`,
`layer_rules` and `norm_rules` have each operator and its vector-Jacobian product.
"""
