"""The model card of a run: what was trained, how well it works, and what its traffic cost."""

from __future__ import annotations

import math

from cutlayer.config.schema import Config
from cutlayer.data.spec import DataSpec
from cutlayer.report.run_summary import Summary
from cutlayer.units import size


def model_card(name: str, config: Config, data: DataSpec, summary: Summary, files: dict[str, str]) -> str:
    """The README.md of a model repository, with the metadata that hubs read in front."""
    cut = config.model.cut if isinstance(config.model.cut, str) else " and ".join(config.model.cut)
    figures = summary.to_json()
    main = next(key.removeprefix("best_") for key in figures if key.startswith("best_"))
    value = figures.get(main)
    scored = f"{value:.4g}" if isinstance(value, float) and math.isfinite(value) else "not evaluated"
    listed = "\n".join(f"| `{file}` | {what} |" for file, what in files.items())
    return f"""---
library_name: cutlayer
tags:
- split-learning
- cutlayer
datasets:
- {_plain(data.name)}
---

# {_plain(name)}

A `{_plain(config.model.name)}` of width {config.model.width}, trained by split learning with
cutlayer (`pip install cutlayer`): clients have the layers up to `{_plain(cut)}`, a server has
the rest.

| | |
|---|---|
| data | {_plain(data.name)}, {sum(data.samples)} samples at {len(data.samples)} clients |
| test {main.replace("_", " ")} | {scored} |
| training | mode {config.train.mode}, {summary.epochs} epochs, {summary.steps} steps, seed {config.seed} |
| codecs | up `{config.codec.up}`, down `{config.codec.down}`, sync `{config.codec.sync}` |
| traffic | {size(summary.total)}; {size(summary.uncompressed)} as float32 |

| file | content |
|---|---|
{listed}

## Use it

    cutlayer pull THIS_REPOSITORY my-run
    cutlayer eval my-run
    cutlayer serve-inference my-run

In Python, `safetensors.torch.load_file("model.safetensors")` gives the state dict of the whole model.
"""


def _plain(text: str) -> str:
    """A name without what Markdown or YAML would take for more than a name."""
    return "".join(letter for letter in text if letter.isalnum() or letter in " ._-:/")
