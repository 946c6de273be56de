"""Pseudo-heads that are copies and pseudo-heads that are not, by closed forms; removal by the model without them."""

import math

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from iha.evaluate.pseudo_heads import Tokens, effective_number, measure, measure_export
from iha.models import IHAConfig, IHAForCausalLM
from iha.train.tokenise import END, byte_tokenizer

SIZES = {
    "vocab_size": 53, "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 32, "initializer_range": 0.3, "global_every": 2,
}  # fmt: skip


def model(**changes):
    torch.manual_seed(0)
    return IHAForCausalLM(IHAConfig(**SIZES | changes)).eval()


@pytest.fixture
def text():
    return Tokens.of_text(torch.randint(0, 53, (2, 12), generator=torch.Generator().manual_seed(0)))


def test_effective_numbers():
    weights = torch.tensor([[1.0, 1.0, 1.0, 1.0], [0.0, 3.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]])
    assert effective_number(weights).tolist() == pytest.approx([4.0, 1.0, 0.0, 2.0])
    assert float(effective_number(torch.tensor([0.25, 0.75]))) == pytest.approx(
        math.exp(-0.25 * math.log(0.25) - 0.75 * math.log(0.75))
    )


def test_copies_are_one(text):
    """Identity mixing under token causality: the P pseudo-heads of a head are equal in everything."""
    copies = model(mixing_init="identity", causal="token", rope_positions="token", window=0, num_pseudo_heads=3)
    found = measure(copies, text)
    (layer,) = found["layers"]  # the other one is multi-head attention
    assert layer["patterns_apart"] == pytest.approx([0.0] * 4, abs=1e-6)
    assert layer["queries_apart"] == pytest.approx([0.0] * 4, abs=1e-6)
    assert layer["effective_rank"] == pytest.approx([1.0] * 4, abs=1e-4)
    assert layer["contributing"] == pytest.approx([3.0] * 4, abs=1e-4)
    assert layer["cosine"] == pytest.approx(dict.fromkeys("qkv", 1.0))
    query = layer["removal"]["query"]
    assert all(row == pytest.approx([row[0]] * 3, abs=1e-6) for row in query)  # whichever of the copies is removed


def test_random_pseudo_heads_are_apart(text):
    found = measure(model(mixing_init="random", window=0, num_pseudo_heads=2), text)
    (layer,) = found["layers"]
    assert min(layer["patterns_apart"]) > 0.05
    assert all(1.0 < rank <= 2.0 for rank in layer["effective_rank"])
    assert max(abs(cosine) for cosine in layer["cosine"].values()) < 0.99
    assert found["summary"]["patterns_apart"]["mean"] == pytest.approx(sum(layer["patterns_apart"]) / 4)


@pytest.mark.parametrize("collapse", ["per_head", "full"])
def test_removal_is_the_loss_without_it(text, collapse):
    subject = model(mixing_init="random", collapse=collapse)
    before = {name: tensor.clone() for name, tensor in subject.state_dict().items()}
    found = measure(subject, text)
    assert all(torch.equal(before[name], tensor) for name, tensor in subject.state_dict().items())
    attention = subject.model.layers[0].self_attn
    with torch.no_grad():
        if collapse == "per_head":
            attention.collapse[1, 0] = 0
        else:
            attention.collapse[:, 1 * 2 + 0] = 0
        logits = subject(text.tokens).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), text.tokens[:, 1:].flatten())
    assert found["layers"][0]["removal"]["query"][1][0] == pytest.approx(float(loss) - found["loss"], abs=1e-5)


def test_a_removed_pseudo_head_costs_nothing_more(text):
    subject = model(mixing_init="random")
    with torch.no_grad():
        subject.model.layers[0].self_attn.collapse[2, 1] = 0
    (layer,) = measure(subject, text)["layers"]
    assert layer["removal"]["query"][2][1] == 0
    assert layer["contributing"][2] == pytest.approx(1.0)
    assert layer["removal"]["head"][2] == pytest.approx(layer["removal"]["query"][2][0], abs=1e-6)


def test_how_far_mixing_has_moved(text):
    subject = model()
    initial = {name: tensor.clone() for name, tensor in subject.state_dict().items()}
    with torch.no_grad():
        subject.model.layers[0].self_attn.alpha_k.mul_(1.5)
    (layer,) = measure(subject, text, initial)["layers"]
    assert layer["moved"] == pytest.approx({"alpha_q": 0.0, "alpha_k": 0.5, "alpha_v": 0.0, "collapse": 0.0})


def test_documents_are_kept_apart(text):
    apart = Tokens(text.tokens, text.labels, (torch.arange(12) // 6).expand(2, 12))
    subject = model(mixing_init="random", window=0)
    assert measure(subject, apart)["loss"] != pytest.approx(measure(subject, text)["loss"])


def test_a_window_of_one_token_leaves_no_choice(text):
    (layer,) = measure(model(mixing_init="random", window=1, causal="token"), text)["layers"]
    assert layer["patterns_apart"] == [0.0] * 4


def test_any_checkpoint_on_any_text(tmp_path):
    model(vocab_size=320, bos_token_id=None, eos_token_id=None).save_pretrained(tmp_path)
    PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer(), eos_token=END).save_pretrained(tmp_path)
    record = measure_export("mine", tmp_path, "some words, many times over. " * 9, 32, 3, "iha inspect")
    assert record.results["tokens"] == 3 * 31
    assert record.results["layers"][0]["moved"] is None
    with pytest.raises(ValueError, match="the text has 5 tokens: too few for one sequence of 32"):
        measure_export("mine", tmp_path, "short", 32, 3, "iha inspect")


def test_a_model_without_pseudo_heads_is_refused(text):
    with pytest.raises(ValueError, match="no IHA layer with more than one pseudo-head"):
        measure(model(attention="global"), text)
