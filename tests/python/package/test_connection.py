"""deep_delta.Connection and its fused step: gradients, compilation, memory, the Triton kernels."""
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import deep_delta as dd  # noqa: E402
from deep_delta import fused  # noqa: E402

UPDATES = ("delta", "write", "erase")


def operands(d, c, dtype=torch.float64):
    torch.manual_seed(0)
    k = torch.nn.functional.normalize(torch.randn(2, 3, d, dtype=dtype), dim=-1)
    shapes = torch.randn(2, 3, d, c, dtype=dtype), k, 2 * torch.rand(2, 3, 1, dtype=dtype), torch.randn(2, 3, c, dtype=dtype)
    return [x.requires_grad_() for x in shapes]


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("d, c", [(1, 1), (7, 1), (5, 3)])
def test_gradients_of_the_step(update, d, c):
    assert torch.autograd.gradcheck(lambda *x: fused.delta_step(*x, update), operands(d, c))


def test_second_derivatives_are_an_error():
    X, k, beta, v = operands(4, 2)
    first, = torch.autograd.grad(fused.delta_step(X, k, beta, v).square().sum(), X, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def stack(mode, options, channels, disable=False):
    torch.manual_seed(1)
    blocks = [dd.wrap(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh()), 16, channels, index=i, fused=mode,
                      disable=disable, **options) for i in range(4)]
    return torch.nn.Sequential(*blocks, dd.Readout(16, channels, disable=disable, **options))


@pytest.mark.parametrize("channels, options", [(1, {}), (3, {}), (3, dict(ddl_compress="channel")), (1, dict(ddl_update="write")),
                                               (1, dict(ddl_map="v")), (2, dict(ddl_update="erase")), (1, dict(ddl_v_constant=True))])
@pytest.mark.parametrize("mode", ["yes", "release"])
def test_the_step_has_the_gradients_of_plain_operations(channels, options, mode):
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    found = []
    for fused_mode in ("no", mode):
        model = stack(fused_mode, options, channels).double()
        given = x.clone().requires_grad_()
        model(dd.expand(given, channels)).square().sum().backward()
        found.append([given.grad, *[p.grad for p in model.parameters()]])
    for plain, other in zip(*found):
        assert (plain is None) == (other is None)
        if plain is not None:
            torch.testing.assert_close(other, plain, rtol=1e-9, atol=1e-11)


def test_release_keeps_one_state():
    """Bytes of states that are alive after the forward pass."""
    def held(mode):
        model, states = stack(mode, {}, 8), []
        for block in model[:-1]:
            block.register_forward_hook(lambda m, args, out: states.append(out))
        out = model(dd.expand(torch.randn(2, 5, 16), 8))
        size = sum(x.untyped_storage().nbytes() for x in states)
        out.sum().backward()
        return size

    state = 2 * 5 * 16 * 8 * 4
    assert held("yes") == 4 * state and held("release") == state


def test_checkpointing_and_autocast():
    x = torch.randn(2, 5, 16)
    for mode in ("yes", "release"):
        model = stack(mode, {}, 2)
        plain = model(dd.expand(x, 2))
        plain.sum().backward()
        expected = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        X = dd.expand(x, 2)
        for block in model[:-1]:
            X = torch.utils.checkpoint.checkpoint(block, X, use_reentrant=False) if mode == "yes" else block(X)
        out = model[-1](X)
        torch.testing.assert_close(out, plain)
        out.sum().backward()
        for p, grad in zip(model.parameters(), expected):
            torch.testing.assert_close(p.grad, grad)
        with torch.autocast("cpu", torch.bfloat16):
            out = model(dd.expand(x, 2))
        out.float().sum().backward()
        torch.testing.assert_close(out.float(), plain, rtol=0.1, atol=0.1)


def test_autocast_leaves_the_step_in_float32():
    """Gate, target, readout and update: the sublayer's own products are in bfloat16."""
    x = torch.randn(2, 5, 16)
    for rule, channels, options in (("delta", 3, dict(ddl_compress="mix")), ("delta", 1, dict(ddl_beta_single_linear=False)),
                                    ("gated", 1, {}), ("highway", 1, {}), ("hyper", 3, {}), ("mhc", 3, {})):
        for mode in ("yes", "no"):
            torch.manual_seed(1)
            connection = dd.Connection(16, channels, rule, fused=mode, **options)
            for p in connection.parameters():
                torch.nn.init.normal_(p)
            found = []
            for enabled in (False, True):
                X = dd.expand(x, channels).clone().requires_grad_()
                with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
                    out = connection(X, lambda x_in: x_in)
                found.append((out, *torch.autograd.grad(out.square().sum(), X)))
            for plain, other in zip(*found):
                torch.testing.assert_close(other, plain, msg=lambda text, rule=rule, mode=mode: f"{rule} {mode}: {text}")


@pytest.mark.parametrize("channels", [1, 3])
def test_compiles_without_graph_breaks(channels):
    model, x = stack("yes", {}, channels), torch.randn(2, 5, 16)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    expected = model(dd.expand(x, channels))
    torch.testing.assert_close(compiled(dd.expand(x, channels)), expected)
    compiled(dd.expand(x, channels)).sum().backward()
    assert all(p.grad is not None for n, p in model.named_parameters() if "branch" in n)


def test_disabled_is_addition():
    for channels in (1, 3):
        model, x = stack("yes", {}, channels, disable=True), torch.randn(2, 5, 16)
        expected = x
        for block in model[:-1]:
            expected = expected + block.branch(block.norm(expected))
        torch.testing.assert_close(model(dd.expand(x, channels)), expected)


@pytest.mark.parametrize("rule", ["scale", "laurel", "hyper", "mhc", "gated", "highway", "delta"])
def test_every_parameter_of_a_connection_is_used(rule):
    """DistributedDataParallel requires a gradient of each."""
    channels = 2 if rule in ("hyper", "mhc") else 1
    connection = dd.Connection(8, channels, rule)
    connection(dd.expand(torch.randn(2, 3, 8), channels), torch.tanh).sum().backward()
    assert [name for name, p in connection.named_parameters() if p.grad is None] == []


def test_release_is_not_for_checkpoints():
    model = stack("release", {}, 3)
    X = dd.expand(torch.randn(2, 5, 16), 3)
    for block in model[:-1]:
        X = torch.utils.checkpoint.checkpoint(block, X, use_reentrant=False)
    with pytest.raises(RuntimeError, match="has released its memory"):
        model[-1](X).sum().backward()


def test_values_of_layer_0_under_fsdp():
    """Blocks that get copies of lists, as fully_shard passes them, have the output of blocks that do not."""
    import ddl_torch
    from torch.utils._pytree import tree_map

    torch.manual_seed(1)
    model = ddl_torch.Model(ddl_torch.Config(vocab_size=20, hidden_size=16, num_hidden_layers=3, num_attention_heads=2,
                                             value_residual=True))
    tokens = torch.arange(12)[None]
    expected = model(tokens)
    for block in model.transformer["h"]:
        block.register_forward_pre_hook(lambda module, arguments: tree_map(lambda x: x, arguments))
    torch.testing.assert_close(model(tokens), expected)


TRITON = """
import sys; sys.path.insert(0, {folder!r})
import torch
from deep_delta import fused, triton_delta
from test_connection import operands, UPDATES
for update in UPDATES:
    for d, c, dtype in ((7, 1, torch.float32), (20, 3, torch.float32), (33, 4, torch.bfloat16)):
        X, k, beta, v = [x.detach().float() for x in operands(d, c)]
        X = X.to(dtype)
        # In bfloat16, sums in another order can round what is written, and each result, to a neighbor.
        written = float((beta * fused.plain_forward(X, k, beta, v, update)[1]).abs().max())
        close = (dict(rtol=1e-5, atol=1e-5) if dtype == torch.float32 else dict(rtol=2 ** -7, atol=2 ** -7 * written))
        X_next, error = triton_delta.forward(X, k, beta, v, update)
        expected, expected_error = fused.plain_forward(X, k, beta, v, update)
        torch.testing.assert_close(X_next, expected, **close)
        torch.testing.assert_close(error, expected_error, rtol=1e-5, atol=1e-5)
        dX_next = torch.randn_like(X)
        before, *found = triton_delta.backward(dX_next, X_next, k, beta, error, update)
        torch.testing.assert_close(before, fused.plain_rebuild(X_next, k, beta, error), **close)
        plain = fused.plain_backward(dX_next, before, k, beta, error, update)
        for one, other in zip(found, plain):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other, rtol=1e-5 if one.dtype == torch.float32 else 2 ** -7, atol=1e-5)
print("equal")
"""


def test_triton_kernels_in_the_interpreter():
    pytest.importorskip("triton")
    code = TRITON.format(folder=os.path.dirname(__file__))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**os.environ, "TRITON_INTERPRET": "1"})
    assert done.stdout == "equal\n", done.stderr[-3000:]


def test_load_has_the_losses_of_the_engine(run):
    engine, model = dd.Engine(run), dd.load(run)
    ids = engine.encode("The quality of mercy is not strained")
    with torch.no_grad():
        logits = model(torch.tensor([ids]))[0].numpy()
    assert abs(logits - engine.logits(ids)).max() < 1e-4


def test_fsdp_of_two_processes_equals_one(tmp_path):
    """Sharded parameters (fully_shard, gloo, on the CPU): losses and trained parameters of one process with both halves."""
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("torch has no gloo")
    import fsdp_worker

    processes = [subprocess.Popen([sys.executable, fsdp_worker.__file__, str(rank), str(tmp_path)], stderr=subprocess.PIPE, text=True,
                                  env={**os.environ, "OMP_NUM_THREADS": "1"})
                 for rank in range(2)]
    for process in processes:
        errors = process.communicate(timeout=300)[1]
        assert process.returncode == 0, errors[-3000:]
    for mode, (losses, parameters, local) in torch.load(tmp_path / "result").items():
        model = fsdp_worker.stack(mode)
        torch.testing.assert_close(losses, fsdp_worker.train(model, fsdp_worker.batch()))
        for name, p in model.named_parameters():
            torch.testing.assert_close(parameters[name], p.detach(), msg=lambda text, name=name: f"{mode} {name}: {text}")
        assert local < 0.6 * sum(p.numel() for p in model.parameters())
