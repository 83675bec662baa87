"""The recipes of examples/torch, and deep_delta.patch_llama."""
import sys

import pytest

torch = pytest.importorskip("torch")

import deep_delta as dd  # noqa: E402
from conftest import SOURCE, TEXT  # noqa: E402

sys.path.insert(0, str(SOURCE / "examples/torch"))
import toy  # noqa: E402

torch.set_num_threads(1)  # models are tiny: more threads only wait for each other


def learned(model, path=TEXT, read=toy.characters, loss_of=toy.next_character_loss, steps=20):
    data = read(path)
    first, last = toy.train(model, lambda model: loss_of(model, data), steps)
    return first - last


@pytest.mark.parametrize("channels", [1, 4])
def test_gpt(channels):
    import gpt

    torch.manual_seed(1)
    assert learned(gpt.GPT(256, channels=channels)) > 0.5


def test_gpt_has_thirty_lines():
    lines = (SOURCE / "examples/torch/gpt.py").read_text().splitlines()
    code = [line for line in lines[lines.index("class Attention(nn.Module):"):] if line.strip()]
    assert len(code) <= 30


@pytest.mark.parametrize("channels", [1, 4])
def test_state_space(channels):
    import state_space

    torch.manual_seed(1)
    model = state_space.Model(256, channels=channels)
    ids = torch.randint(256, (1, 12))
    changed = ids.clone()
    changed[0, 8] = (changed[0, 8] + 1) % 256
    torch.testing.assert_close(model(ids)[:, :8], model(changed)[:, :8])  # causal
    assert learned(model) > 0.5


def test_state_space_is_its_recurrence():
    import state_space

    torch.manual_seed(1)
    module = state_space.StateSpace(6, 3).double()
    x = torch.randn(2, 9, 6, dtype=torch.float64)
    u, gate = module.enter(x).chunk(2, -1)
    decay, h, out = torch.exp(-(module.dt + module.a).exp()), torch.zeros(2, 6, 3, dtype=torch.float64), []
    for t in range(9):
        h = decay * h + u[:, t, :, None]
        out.append((h * module.c).sum(-1) + module.D * u[:, t])
    expected = module.out(torch.stack(out, 1) * torch.nn.functional.silu(gate))
    torch.testing.assert_close(module(x), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("channels", [1, 4])
def test_resnet(channels):
    import resnet

    torch.manual_seed(1)
    model = resnet.ResNet(channels=channels)
    assert learned(model, SOURCE / "data/digits/digits.bin", resnet.digits, resnet.loss_of, 30) > 0.3
    assert model(torch.randn(2, 1, 16, 16)).shape == (2, 10)  # of any size


@pytest.fixture
def llama():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=256, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128)).eval()


def test_llama_learns():
    pytest.importorskip("transformers")
    import llama

    torch.manual_seed(1)
    assert learned(llama.small(4, False)) > 0.5


@pytest.mark.parametrize("c", [1, 4])
def test_disabled_llama_has_its_own_output(llama, c):
    ids = torch.randint(256, (2, 12))
    expected = llama(ids).logits
    names = {name for name, _ in llama.named_parameters()}
    patched = dd.patch_llama(llama, c=c, disable=True)
    assert patched is llama
    torch.testing.assert_close(patched(ids).logits, expected)
    kept = {name.replace("model.norm.norm.", "model.norm.") for name, _ in patched.named_parameters()}
    assert kept == names


@pytest.mark.parametrize("options", [dict(c=1), dict(c=4), dict(c=2, ddl_compress="mix", fused="no"), dict(c=2, rule="hyper")])
def test_llama_generates_with_a_cache(llama, options):
    dd.patch_llama(llama, **options)
    ids = torch.randint(256, (2, 5))
    mask = torch.ones_like(ids)
    both = [llama.generate(ids, attention_mask=mask, max_new_tokens=8, do_sample=False, use_cache=use) for use in (True, False)]
    assert torch.equal(*both)


def test_llama_with_gradient_checkpointing_and_files(llama, tmp_path):
    dd.patch_llama(llama, c=3).train()
    ids = torch.randint(256, (2, 12))
    llama(ids, labels=ids).loss.backward()
    expected = [p.grad.clone() for p in llama.parameters()]
    llama.zero_grad()
    llama.gradient_checkpointing_enable()
    llama(ids, labels=ids).loss.backward()
    for p, grad in zip(llama.parameters(), expected):
        torch.testing.assert_close(p.grad, grad)
    llama.save_pretrained(tmp_path)
    again = dd.patch_llama(type(llama)(llama.config), c=3)
    from safetensors.torch import load_file

    again.load_state_dict(load_file(tmp_path / "model.safetensors"))
    torch.testing.assert_close(again.eval()(ids).logits, llama.eval()(ids).logits)


def test_llama_keeps_the_state_of_its_layers(llama):
    """Gradient checkpointing that was enabled before; the devices of a split model."""
    from accelerate.hooks import AlignDevicesHook, add_hook_to_module

    calls = []
    llama.train().gradient_checkpointing_enable()
    add_hook_to_module(llama.model.layers[1], AlignDevicesHook("cpu"))
    for layer in llama.model.layers:
        layer._gradient_checkpointing_func = lambda f, *arguments, **options: calls.append(f) or f(*arguments, **options)
    with pytest.raises(ValueError, match="fused: expected yes or no with gradient checkpointing"):
        dd.patch_llama(llama, fused="release")
    dd.patch_llama(llama)
    first, second = llama.model.layers
    assert isinstance(second._hf_hook, AlignDevicesHook) and not hasattr(first, "_hf_hook")
    ids = torch.randint(256, (2, 12))
    llama(ids, labels=ids).loss.backward()
    assert len(calls) == 2
    split = type(llama)(llama.config)
    split.model.layers[1].to("meta")
    first, second = dd.patch_llama(split).model.layers
    assert first.connections[0].rule.beta.weight.is_cpu and second.connections[0].rule.beta.weight.is_meta
    assert split.model.norm.readout.reader.read.is_meta


def test_errors_of_patch_llama(llama):
    with pytest.raises(TypeError, match="expected a LlamaModel or LlamaForCausalLM, found Linear"):
        dd.patch_llama(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="ddl_compress: expected channel or mix"):
        dd.patch_llama(llama, c=4, ddl_compress="token")
    dd.patch_llama(llama.model)
    with pytest.raises(ValueError, match="already"):
        dd.patch_llama(llama)
