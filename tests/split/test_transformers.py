"""Models of the transformers package from configurations: cut by the name of a block, equal to the whole."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cutlayer.errors import CheckpointError, CutError
from cutlayer.split import cut, cut_points
from tests.several_nets import bert_with, vit_with

transformers = pytest.importorskip("transformers", reason="needs the extra `hf`: pip install 'cutlayer[hf]'")

SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2}


def gpt2(**settings: Any) -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=31,
        n_positions=32,
        n_embd=16,
        n_layer=3,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
        **{"tie_word_embeddings": False, **settings},
    )
    return transformers.GPT2LMHeadModel(config)


def llama() -> nn.Module:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(vocab_size=31, max_position_embeddings=32, **SMALL)
    )


def bert() -> nn.Module:
    return bert_with(vocab_size=31, max_position_embeddings=32, **SMALL)


def vit() -> nn.Module:
    return vit_with(**SMALL)


MODELS = {
    "gpt2": (gpt2, "transformer.h"),
    "llama": (llama, "model.layers"),
    "bert": (bert, "bert.encoder.layer"),
    "vit": (vit, "vit.layers"),
}


def inputs_for(name: str) -> dict[str, Tensor]:
    if name == "vit":
        return {"pixel_values": torch.randn(3, 3, 8, 8)}
    ids = torch.randint(0, 31, (3, 10))
    mask = torch.ones_like(ids)
    mask[0, 6:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def gradients(model: nn.Module, output: Any) -> dict[str, Tensor]:
    model.zero_grad()
    output.logits.square().mean().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("u_shaped", [False, True])
@pytest.mark.parametrize("name", list(MODELS))
def test_parts_are_the_whole(name: str, u_shaped: bool) -> None:
    torch.manual_seed(0)
    make, blocks = MODELS[name]
    model, inputs = make(), inputs_for(name)
    parts = cut(model, at=(f"{blocks}.0", f"{blocks}.2") if u_shaped else f"{blocks}.0")
    torch.manual_seed(1)
    # With a cache keys and values take another way in memory, and round otherwise.
    expected = model.train()(**inputs, **({"use_cache": False} if name in ("gpt2", "llama") else {}))
    wanted = gradients(model, expected)
    for part in parts:
        part.train()
    torch.manual_seed(1)  # dropout, in the same order
    value = parts[0](**inputs)
    for part in parts[1:]:
        value = part(value)
    assert type(value) is type(expected)
    assert torch.equal(value.logits, expected.logits)
    found = gradients(model, value)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[n], wanted[n]) for n in found)


def test_what_crosses_beside_the_hidden_states() -> None:
    points = cut_points(bert(), {"input_ids": torch.zeros(1, 6, dtype=torch.int64)})
    assert [(p.name, p.shape, p.others) for p in points if ".layer." in p.name] == [
        ("bert.encoder.layer.0", (6, 16), ()),
        ("bert.encoder.layer.1", (6, 16), ()),
        ("bert.encoder.layer.2", (6, 16), ()),
    ]
    client, server = cut(bert(), at="bert.embeddings")
    assert server.inputs == ("attention_mask", "bert_embeddings")
    client, server = cut(llama(), at="model.layers.0")
    crossing = client(**inputs_for("llama"))
    # Not the rotary embeddings, and not the causal mask of pairs.
    assert {name: (tuple(t.shape), t.dtype) for name, t in crossing.items()} == {
        "attention_mask": ((3, 10), torch.int64),
        "model_layers_0": ((3, 10, 16), torch.float32),
    }
    assert server(crossing).logits.shape == (3, 10, 31)


def test_parts_of_a_transformer_are_copied_and_pickled() -> None:
    inputs = inputs_for("bert")
    parts = [part.eval() for part in cut(bert(), at="bert.encoder.layer.0")]
    again = pickle.loads(pickle.dumps(copy.deepcopy(parts)))  # noqa: S301, our own
    expected, found = (second(first(**inputs)) for first, second in (parts, again))
    assert torch.equal(found.logits, expected.logits)
    assert type(found) is type(expected)


def test_tied_embeddings_say_what_to_do() -> None:
    model = gpt2(tie_word_embeddings=True).eval()
    with pytest.raises(CutError, match="tie_word_embeddings=False"):
        cut(model, at="transformer.h.0")
    # In a U-shape both are the client's.
    inputs = inputs_for("gpt2")
    head, body, tail = (part.eval() for part in cut(model, at=("transformer.h.0", "lm_head")))
    assert torch.equal(tail(body(head(**inputs))).logits, model(**inputs, use_cache=False).logits)


def test_a_cache_cannot_cross() -> None:
    tokens = torch.zeros(2, 5, dtype=torch.int64)
    with pytest.raises(CutError, match=r"DynamicCache.*use_cache=False in the example"):
        cut(gpt2(), at="transformer.h.0", example={"input_ids": tokens, "use_cache": True})


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
def test_lora_trains_and_shares_adapters_only() -> None:
    peft = pytest.importorskip("peft", reason="needs the extra `hf`: pip install 'cutlayer[hf]'")
    from cutlayer.split.client import ClientHalf, ClientModel
    from cutlayer.split.server import ServerHalf
    from cutlayer.split.state import client_state, restore_client, server_state

    torch.manual_seed(0)
    adapters = peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, init_lora_weights=False)
    model = peft.get_peft_model(gpt2(), adapters)
    inputs = inputs_for("gpt2")
    expected = model.eval()(**inputs).logits
    head, body = cut(model, at="base_model.model.transformer.h.0")
    assert torch.equal(body.eval()(head.eval()(**inputs)).logits, expected)

    def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1)

    class NextToken:
        def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
            return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())

        losses = loss

    client, server = ClientHalf(ClientModel([head], sgd)), ServerHalf(body, sgd, NextToken())
    assert all("lora_" in name for name in client.model.parameter_names)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    _, back = server.train(client.forward(inputs), inputs["input_ids"])
    client.backward(back)
    assert client.gradient_vector().numel() == sum(p.numel() for p in client.model.parameters) > 0
    client.backward(server.train(client.forward(inputs), inputs["input_ids"])[1])
    client.step(0.1)
    server.update(0.1)
    changed = {n for n, t in model.state_dict().items() if not torch.equal(t, before[n])}
    assert changed
    assert all("lora_" in name for name in changed)
    for state in (client_state(client), server_state(server)):
        names = [name for name in state if name.startswith("model.")]
        assert names
        assert all("lora_" in name for name in names)
    # Another base is another model.
    state = client_state(client)
    with torch.no_grad():
        next(p for p in head.parameters() if not p.requires_grad).add_(1)
    with pytest.raises(CheckpointError, match="frozen weights"):
        restore_client(client, state, 1)
