"""A Hugging Face Trainer whose model ends on a server: python trainer_client.py 127.0.0.1:50551

The task: does token 7 occur in the first half of a sequence?
"""

import sys
import tempfile

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel, Trainer, TrainingArguments

import cutlayer


class SplitBert(nn.Module):
    """Embeddings and the first block here, the rest far away."""

    def __init__(self, remote: cutlayer.Remote) -> None:
        super().__init__()
        settings = {"vocab_size": 64, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
        bert = BertModel(BertConfig(**settings, num_hidden_layers=1))
        self.embeddings, self.block, self.remote = bert.embeddings, bert.encoder.layer[0], remote

    def forward(self, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        hidden = self.block(self.embeddings(input_ids))
        if self.training:
            return {"loss": self.remote(hidden, labels)}
        return {"loss": self.remote(hidden, labels), "logits": self.remote(hidden)}


def data(samples: int, seed: int) -> list[dict[str, Tensor]]:
    tokens = torch.randint(8, 64, (samples, 16), generator=torch.Generator().manual_seed(seed))
    tokens[::2, 3] = 7
    return [{"input_ids": row, "labels": (row[:8] == 7).any().long()} for row in tokens]


def main(address: str, epochs: float = 3) -> float:
    with tempfile.TemporaryDirectory() as folder, cutlayer.connect(address, codec="ems:bpe=4") as remote:
        settings = TrainingArguments(
            folder, num_train_epochs=epochs, learning_rate=1e-2, per_device_train_batch_size=32,
            use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        trainer = Trainer(
            SplitBert(remote),
            settings,
            train_dataset=data(512, 0),
            eval_dataset=data(128, 1),
            compute_metrics=lambda found: {
                "accuracy": (found.predictions.argmax(1) == found.label_ids).mean()
            },
        )
        trainer.train()
        return float(trainer.evaluate()["eval_accuracy"])


if __name__ == "__main__":
    print(f"accuracy {main(sys.argv[1]):.3f}")
