"""ONNX halves that say something else of themselves."""

import json
from pathlib import Path


def changed(path: Path, target: Path, about: dict[str, object] | None = None, **metadata: str) -> Path:
    """A copy of a half with other words about it, and other metadata."""
    import onnx  # tests without it are skipped

    model = onnx.load(path)
    known = {p.key: p.value for p in model.metadata_props} | metadata
    known["cutlayer"] = json.dumps(json.loads(known["cutlayer"]) | (about or {}))
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, known)
    onnx.save(model, target)
    return target
