"""deep_delta.hf: models of ddl in transformers. Needs torch and transformers."""
import copy
import json
import os

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
os.environ["HF_HUB_OFFLINE"] = "1"

import deep_delta as dd  # noqa: E402
import deep_delta.hf  # noqa: E402, F401
from conftest import SOURCE, TOKENIZER  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

GOLDEN = SOURCE / "tests/golden"
VARIANTS = sorted(path.parent.name for path in GOLDEN.glob("*/config.json") if not path.parent.name.startswith("wide-"))
PROMPT = "First Citizen:\nBefore we"


def exported(source, folder, **options):
    """A folder for transformers."""
    dd.cli.run("export", source, hf=True, out=folder, **options)
    return folder


def variant(name, tmp_path):
    """A model of tests/golden in transformers and in the engine, and tokens (B, T)."""
    model = AutoModelForCausalLM.from_pretrained(exported(GOLDEN / name, tmp_path / name))
    tokens = np.random.default_rng(5).integers(0, model.config.vocab_size, (2, min(12, model.config.block_size)))
    return model, dd.Engine(GOLDEN / name), torch.from_numpy(tokens)


@pytest.mark.parametrize("name", ["baseline", "ddl-1", "ddl-cc-ec", "ddl-tc-ec", "ddl-2step", "mhc", "attnres", "denseformer",
                                  "resformer"])
def test_losses_and_text_are_those_of_ddl(name, shards, tmp_path):
    """A run of a named model: the loss of ddl eval, and the text of ddl generate. test_variants has every configuration."""
    dd.cli.train(model=name, train_data=shards, tokenizer=TOKENIZER, out=tmp_path / "run", steps=2, batch=1, seq=32,
                 num_hidden_layers=2, num_attention_heads=2, hidden_size=32, hidden_size_base=32, block_size=64,
                 val_data="none", progress=False)
    folder = exported(tmp_path / "run", tmp_path / "hf", license="mit")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert isinstance(model, dd.DeepDeltaForCausalLM) and not model.training
    text = tmp_path / "text"
    text.write_text(PROMPT * 12)
    ids = torch.tensor([[tokenizer.eos_token_id, *tokenizer(text.read_text()).input_ids]])[:, :65]
    said = [-row["logprob"] for row in dd.cli.run("logprobs", tmp_path / "run", text)][:64]
    losses = torch.nn.functional.cross_entropy(model(ids[:, :64]).logits[0].double(), ids[0, 1:], reduction="none")
    np.testing.assert_allclose(losses.detach().numpy(), said, atol=1e-5)
    assert model(ids[:, :64], labels=ids[:, :64]).loss.item() == pytest.approx(np.mean(said[:63]), abs=1e-5)
    inputs = tokenizer(PROMPT, return_tensors="pt")
    out = model.generate(**inputs, max_new_tokens=24, do_sample=False)
    expected = dd.cli.run("generate", tmp_path / "run", prompt=PROMPT, max_tokens=24, temperature=0)[0]["text"]
    assert tokenizer.decode(out[0, inputs.input_ids.shape[1]:], skip_special_tokens=True) == expected


def test_losses_are_those_of_eval(run, shards, tmp_path):
    """The validation loss of ddl eval over windows of the context."""
    model = AutoModelForCausalLM.from_pretrained(exported(run, tmp_path / "hf"))
    said, again = (dd.cli.run("eval", folder, val_data=shards, max_tokens=512)["models"][0] for folder in (run, tmp_path / "hf"))
    assert again["loss"] == said["loss"]
    tokens = np.fromfile(next(shards.glob("*val*.bin")), np.uint16, offset=1024)[:said["tokens"] + 1].astype(np.int64)
    context, total = model.config.block_size, 0.0
    for at in range(0, said["tokens"], context):
        ids = torch.from_numpy(tokens[at:at + context + 1])
        logits = model(ids[None, :-1]).logits[0].double()
        total += torch.nn.functional.cross_entropy(logits, ids[1:], reduction="sum").item()
    assert total / said["tokens"] == pytest.approx(said["loss"], abs=1e-5)


@pytest.mark.parametrize("name", VARIANTS)
def test_variants(name, tmp_path):
    """Every configuration of the golden vectors: logits of the engine, at once and token by token with a cache."""
    model, engine, tokens = variant(name, tmp_path)
    with torch.no_grad():
        out = model(tokens)
        limit = 1e-5 * out.logits.abs().max().item()
        np.testing.assert_allclose(out.logits, engine.logits(tokens.numpy()), rtol=0, atol=limit)
        loss = torch.nn.functional.cross_entropy(out.logits[:, :-1].flatten(0, 1).double(), tokens[:, 1:].flatten())
        assert loss.item() == pytest.approx(engine.scores(tokens.numpy()).loss, abs=1e-5)
        assert model(tokens, logits_to_keep=1).logits.shape[1] == 1
        cache, pieces = None, []
        for piece in tokens.split([3, 1] + [2] * ((tokens.shape[1] - 4) // 2) + [1] * (tokens.shape[1] % 2), 1):
            step = model(piece, cache=cache)
            cache = step.cache
            pieces.append(step.logits)
        torch.testing.assert_close(torch.cat(pieces, 1), out.logits, atol=limit, rtol=0)


@pytest.mark.parametrize("name", ["add", "attnres", "ddl-cc-ec", "ddl-tc-ec", "mhc", "value-ddl-tc", "dense-ddl-cc-ec"])
def test_padding_has_no_effect(name, tmp_path):
    model, _, tokens = variant(name, tmp_path)
    model.generation_config.pad_token_id = 0
    padded = torch.cat([torch.zeros_like(tokens[:, :3]), tokens[:, :5]], 1)
    padded[1, :3] = tokens[1, :3]
    mask = torch.ones_like(padded)
    mask[0, :3] = 0
    rows = [tokens[:1, :5], padded[1:]]
    alone, whole = (model.generate(row, attention_mask=torch.ones_like(row), max_new_tokens=4, do_sample=False)[0, -4:] for row in rows)
    for use_cache in (True, False):
        both = model.generate(padded, attention_mask=mask, max_new_tokens=4, do_sample=False, use_cache=use_cache)
        assert torch.equal(both[0, -4:], alone) and torch.equal(both[1, -4:], whole)
    last = model(padded, attention_mask=mask).logits[0, -1]
    torch.testing.assert_close(last, model(tokens[:1, :5]).logits[0, -1], atol=2e-5, rtol=1e-5)


def test_beams(tmp_path):
    model, _, tokens = variant("ddl-tc-ec", tmp_path)
    both = [model.generate(tokens[:, :4], max_new_tokens=6, num_beams=3, do_sample=False, use_cache=use) for use in (True, False)]
    assert torch.equal(*both)


@pytest.mark.parametrize("name", ["attnres", "ddl-tc-ec", "value", "dense-ddl-cc-ec", "hyper"])
def test_gradient_checkpointing(name, tmp_path):
    """The same gradients, with less memory: blocks are called again in the backward pass."""
    model, _, tokens = variant(name, tmp_path)
    model.train()
    model(tokens, labels=tokens).loss.backward()
    expected = {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}
    model.zero_grad()
    model.gradient_checkpointing_enable()
    calls = []
    model.transformer["h"][0].attn.c_q.register_forward_hook(lambda *_: calls.append(1))
    model(tokens, labels=tokens).loss.backward()
    assert len(calls) == 2
    for name, gradient in expected.items():
        torch.testing.assert_close(dict(model.named_parameters())[name].grad, gradient, rtol=1e-5, atol=1e-7)


def test_tokenizer_and_files(run, tmp_path):
    folder = exported(run, tmp_path / "hf", license="apache-2.0", dtype="bf16")
    tokenizer, engine = AutoTokenizer.from_pretrained(folder), dd.Engine(run)
    assert isinstance(tokenizer, transformers.PreTrainedTokenizerFast) and tokenizer.model_max_length == engine.context
    for text in (PROMPT, "  two  spaces\t\n\n", "Grüße, 世界 🙂"):
        assert tokenizer(text).input_ids == engine.encode(text) and tokenizer.decode(engine.encode(text)) == text
    assert tokenizer.eos_token_id == 50256 and AutoModelForCausalLM.from_pretrained(folder).dtype == torch.bfloat16
    head = (folder / "README.md").read_text().split("---")[1]
    assert "library_name: transformers\n" in head and "license: apache-2.0\n" in head


def test_saved_models_are_read_by_ddl(run, tmp_path):
    """Both ways: save_pretrained writes what the engine loads, with the same logits."""
    model = AutoModelForCausalLM.from_pretrained(exported(run, tmp_path / "hf"))
    with torch.no_grad():
        model.ln_f.weight.mul_(1.5)
    model.save_pretrained(tmp_path / "saved")
    ids = np.arange(100, 120)
    np.testing.assert_allclose(dd.Engine(tmp_path / "saved").logits(ids), model(torch.from_numpy(ids)[None]).logits[0].detach(),
                               atol=2e-5)


def test_new_models_have_initial_values(tmp_path):
    config = dd.DeepDeltaConfig(vocab_size=300, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                                ddl_residual="delta", ddl_value_channels=4)
    model = AutoModelForCausalLM.from_config(config)
    assert model.transformer["h"][0].ddl_attn.beta.bias.item() == 0 and torch.all(model.ln_f.weight == 1)
    assert torch.all(model.readout.read == 0.25) and 0.015 < model.transformer["wte"].weight.std() < 0.025
    with pytest.raises(TypeError, match="cache: expected the cache of an earlier output, found dict"):
        model(torch.ones(1, 3, dtype=torch.long), cache={})
    state = model.state_dict()
    del state["transformer.h.0.ddl_attn.beta.bias"], state["ln_f.weight"]
    model.save_pretrained(tmp_path / "part", state_dict=state)
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "part")
    assert again.transformer["h"][0].ddl_attn.beta.bias.item() == 0 and torch.all(again.ln_f.weight == 1)
    assert torch.equal(again.transformer["wte"].weight, model.transformer["wte"].weight)


def test_new_tokens_have_initial_values(tmp_path):
    model, _, _ = variant("ddl-cc-ec", tmp_path)
    before = model.transformer["wte"].weight.detach().clone()
    model.resize_token_embeddings(len(before) + 200, mean_resizing=False)
    after = model.transformer["wte"].weight.detach()
    assert torch.equal(after[:len(before)], before)
    assert after[len(before):].std().item() == pytest.approx(model.config.embedding_init_std, rel=0.1)


def test_replicas_have_their_own_modules(tmp_path):
    """As DataParallel makes them, on one device."""
    model, _, tokens = variant("ddl-cc-ec", tmp_path)
    expected = model(tokens).logits
    replica = model._replicate_for_data_parallel()
    replica._modules = {name: copy.deepcopy(module) for name, module in model._modules.items()}
    with torch.no_grad():
        replica.ln_f.weight.mul_(2)
    torch.testing.assert_close(replica(tokens).logits, 2 * expected)
    torch.testing.assert_close(model(tokens).logits, expected)


def test_trainer(run, tmp_path):
    pytest.importorskip("accelerate")
    model = AutoModelForCausalLM.from_pretrained(exported(run, tmp_path / "hf"))
    ids = dd.Engine(run).encode((SOURCE / "data/text/tinyshakespeare.txt").read_text()[:3000])
    rows = [{"input_ids": ids[at:at + 32], "labels": ids[at:at + 32]} for at in range(0, 256, 32)]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "trainer"), max_steps=6, per_device_train_batch_size=4, learning_rate=3e-3, logging_steps=1,
        gradient_checkpointing=True, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True)
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=rows)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0] - 0.5
    trainer.save_model(str(tmp_path / "saved"))
    assert json.loads((tmp_path / "saved/config.json").read_text())["model_type"] == "deep_delta"
    assert dd.Engine(tmp_path / "saved").scores(ids[:32]).loss < losses[0]
