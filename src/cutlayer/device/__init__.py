"""A device without PyTorch: its half of a model is an ONNX file, run by onnxruntime; all else is NumPy.

`inference_half` computes smashed data for predictions; `participant` takes part in training. `onnx_export`
writes the files. Nothing here may import PyTorch, settings or models: a device has none of them.
"""
