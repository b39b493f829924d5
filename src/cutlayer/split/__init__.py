"""Cut models in halves: tensors, never bytes."""
