"""The model of a recipe: sizes, seeds, precision, weights to start from, and which parameters are mixing."""

from dataclasses import replace

import pytest
import runs
import torch

from iha.models.modeling import IHAForCausalLM
from iha.train.build import build_model, changed_config, mixing_parameters, model_config
from iha.train.recipe import Data, Model, Recipe

SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


def recipe(attention="iha", **changes):
    config = {**SIZES, "num_pseudo_heads": 2, **changes}
    return Recipe(model=Model(attention=attention, config=config), data=Data(context=16))


@pytest.mark.parametrize(("vocabulary", "size"), [(1, 64), (64, 64), (65, 128), (262, 320)])
def test_the_vocabulary_is_rounded_up_to_64(vocabulary, size):
    config = model_config(recipe(), vocabulary, 7)
    assert (config.vocab_size, config.max_position_embeddings, config.eos_token_id) == (size, 16, 7)


def test_the_recipe_has_the_last_word_on_its_vocabulary():
    assert model_config(recipe(vocab_size=100), 100, None).vocab_size == 100
    with pytest.raises(ValueError, match=r"vocab_size is 100, the tokenizer has 101"):
        model_config(recipe(vocab_size=100), 101, None)
    with pytest.raises(ValueError, match=r"model\.config\.num_layers: IHAConfig has no such field"):
        model_config(recipe(num_layers=3), 100, None)


def test_weights_follow_from_the_seed_alone():
    config = model_config(recipe(), 100, 0)
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    one = build_model(recipe(), config)
    assert torch.equal(torch.random.get_rng_state(), state)  # the caller's random numbers are left alone
    torch.manual_seed(2)
    again, other = build_model(recipe(), config), build_model(Recipe(seed=1, model=recipe().model), config)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), again.parameters(), strict=True))
    assert not torch.equal(one.lm_head.weight, other.lm_head.weight)


@pytest.mark.parametrize(
    ("precision", "dtype"), [("float32", torch.float32), ("bfloat16", torch.float32), ("float64", torch.float64)]
)
def test_weights_are_kept_in_float32_at_least(tmp_path, precision, dtype):
    """bfloat16 is the precision of products; FSDP2 casts for them."""
    asked = runs.tiny(tmp_path, f"parallel.precision={precision}")
    model = build_model(asked, model_config(asked, 262, 256))
    assert {p.dtype for p in model.parameters()} == {dtype}
    assert model.config.use_cache is False


MIXING = {
    "iha": {"alpha_q", "alpha_k", "alpha_v", "collapse"},
    "talking_heads": {"mix_logits", "mix_weights"},
    "differential": {"lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2", "norm_weight"},
    "global": set(),
}


@pytest.mark.parametrize("attention", MIXING)
def test_mixing_is_what_a_mechanism_adds_to_the_projections(attention):
    model = build_model(recipe(attention, global_every=2), model_config(recipe(attention, global_every=2), 100, 0))
    names = mixing_parameters(model)
    assert {name.rpartition(".")[2] for name in names} == MIXING[attention]
    assert names <= {name for name, _ in model.named_parameters()}
    if attention == "iha":
        assert all(name.startswith("model.layers.0.self_attn.") for name in names)  # the second layer is global


def test_scaled_weights_let_tokens_stand_out_of_the_residual_stream():
    """And every mechanism begins with the same backbone."""
    backbones = []
    for attention in ("iha", "global", "global_local", "talking_heads", "differential"):
        plain = recipe(attention, tie_word_embeddings=False, initializer_range=0.1, hidden_size=64)
        scaled = replace(plain, model=replace(plain.model, initialisation="scaled"))
        before, after = (build_model(made, model_config(made, 512, 0)) for made in (plain, scaled))
        mixing = mixing_parameters(after)
        for (name, weight), old in zip(after.named_parameters(), before.parameters(), strict=True):
            if name in mixing or weight.dim() < 2:
                torch.testing.assert_close(weight, old, rtol=0, atol=0)
                continue
            wanted = 1.0 if "embed" in name else 0.05 if "o_proj" in name or "down_proj" in name else 0.1
            assert weight.std().item() == pytest.approx(wanted, rel=0.06)
        backbones.append({name: weight for name, weight in after.named_parameters() if name not in mixing})
    for other in backbones[1:]:
        assert other.keys() == backbones[0].keys()
        assert all(torch.equal(other[name], weight) for name, weight in backbones[0].items())


def test_scaled_weights_need_untied_embeddings():
    tied = recipe(tie_word_embeddings=True)
    tied = replace(tied, model=replace(tied.model, initialisation="scaled"))
    with pytest.raises(ValueError, match=r"model\.initialisation is 'scaled'.*untie them"):
        build_model(tied, model_config(tied, 100, 0))


def test_a_changed_configuration_derives_its_schedule_again():
    config = model_config(recipe(global_every=None), 100, 0)
    longer = changed_config(config, max_position_embeddings=160, layer_schedule=None)
    assert [layer["window"] for layer in config.layer_schedule] == [16 // 8] * 2  # N/(2P²)
    assert [layer["window"] for layer in longer.layer_schedule] == [160 // 8] * 2
    # What the caches of transformers keep: the W tokens that the next one sees under virtual causality, and itself.
    assert longer.sliding_window == 160 // 8 + 1


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    directory = tmp_path_factory.mktemp("weights")
    IHAForCausalLM(model_config(recipe(), 262, 256)).save_pretrained(directory)
    return directory


def test_weights_to_start_from_are_loaded(weights):
    start = Recipe(model=Model(init_from=str(weights)), data=Data(context=64))
    config = model_config(start, 262, 256)
    assert (config.num_hidden_layers, config.max_position_embeddings) == (2, 64)
    loaded, saved = build_model(start, config), IHAForCausalLM.from_pretrained(weights)
    for (name, one), other in zip(loaded.named_parameters(), saved.parameters(), strict=True):
        assert torch.equal(one, other), name


def test_weights_that_do_not_fit_the_recipe_are_refused(weights, tmp_path):
    def start(attention="iha", preset=None):
        return Recipe(model=Model(preset, attention, init_from=str(weights)), data=Data(context=64))

    with pytest.raises(ValueError, match="has attention 'iha', the recipe 'global'"):
        model_config(start("global"), 262, 256)
    with pytest.raises(ValueError, match=r"model\.preset and model\.init_from"):
        model_config(start(preset="1m"), 262, 256)
    with pytest.raises(ValueError, match="too small for the recipe's tokenizer"):
        model_config(start(), 5000, 256)
    with pytest.raises(ValueError, match=r"has no config\.json"):
        model_config(Recipe(model=Model(init_from=str(tmp_path / "none"))), 262, 256)


def test_a_run_starts_from_a_converted_llama(tmp_path):
    """Its first step has the loss of the Llama itself on the same batch, one document at a time."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from iha.convert import convert
    from iha.train.batches import Corpus
    from iha.train.metrics import FILE, read_metrics
    from iha.train.prepare import data_directory
    from iha.train.tokenise import load_tokenizer

    torch.manual_seed(0)
    sizes = {"vocab_size": 320, **SIZES, "num_key_value_heads": 2, "max_position_embeddings": 32, "bos_token_id": None}
    llama = LlamaForCausalLM(LlamaConfig(**sizes, eos_token_id=256)).eval()
    llama.save_pretrained(tmp_path / "llama")
    convert(tmp_path / "llama", tmp_path / "iha", 2)
    start = runs.tiny(
        tmp_path, f"model.init_from={tmp_path}/iha", "model.config={}", "data.packing=whole", "data.context=256",
        "data.sources=[{name: hops, kind: generated, generator: hops, count: 40}]", "schedule.steps=2",
        "schedule.warmup=1",
    )  # fmt: skip
    runs.completed(start, tmp_path / "run")
    tokenizer = load_tokenizer(start.data.tokenizer)
    batch = Corpus(start.data, data_directory(start, tmp_path / "run"), tokenizer, start.seed).batch(0)
    with torch.no_grad():
        losses = []
        for tokens, labels, documents in zip(batch.tokens, batch.labels, batch.documents, strict=True):
            for document in documents.unique():
                mine = documents == document
                logits = llama(input_ids=tokens[mine][None]).logits[0]
                loss = torch.nn.functional.cross_entropy(logits, labels[mine], reduction="none")
                losses.append(loss[labels[mine] >= 0])
    first = next(line["loss"] for line in read_metrics(tmp_path / "run" / FILE) if "loss" in line)
    assert first == pytest.approx(torch.cat(losses).mean().item(), rel=1e-5)


@pytest.mark.parametrize("numbers", [[2, 2], [2, 1]])
def test_a_schedule_that_was_set_layer_by_layer_is_kept(tmp_path, numbers):
    """At another context the window N/(2P²) is derived again, unless an allocation or growth has set the layers."""
    config = model_config(recipe(causal="token", rope_positions="token", global_every=None), 100, 0)
    layers = [{**layer, "num_pseudo_heads": P} for layer, P in zip(config.layer_schedule, numbers, strict=True)]
    IHAForCausalLM(changed_config(config, layer_schedule=layers)).save_pretrained(tmp_path)
    longer = Recipe(model=Model(init_from=str(tmp_path)), data=Data(context=64))
    continued = model_config(longer, 100, 0)
    build_model(longer, continued)  # the weights fit
    windows = [layer.window for layer in continued.layers]
    assert windows == ([64 // 8] * 2 if numbers == [2, 2] else [16 // 8] * 2)
    assert [layer.num_pseudo_heads for layer in continued.layers] == numbers
