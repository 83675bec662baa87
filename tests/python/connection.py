"""Tests of python/ddl_connection.py against the models of python/ddl_torch.py.

Run by connection.sh with DDL_SOURCE_DIR; prints results in cmocka's format.
"""
import os
import subprocess
import sys
from pathlib import Path

import torch

SOURCE = Path(os.environ["DDL_SOURCE_DIR"])
sys.path.insert(0, str(SOURCE / "python"))
sys.dont_write_bytecode = True
import ddl_connection
import ddl_torch

SMALL = dict(vocab_size=61, hidden_size=24, num_hidden_layers=3, num_attention_heads=2, head_dim=8, block_size=32)
DELTA = [dict(), dict(ddl_map="v"), dict(ddl_map="v", ddl_k_rank=5), dict(ddl_update="write", ddl_v_input="context"),
         dict(ddl_update="erase"), dict(ddl_steps=2), dict(ddl_beta_single_linear=False, ddl_beta_hidden_size=7),
         dict(ddl_beta_constant=True, ddl_v_sigmoid=False)]
WIDE = [dict(), dict(ddl_compress="channel"), dict(ddl_compress="mix", ddl_map="v"), dict(ddl_steps=3, ddl_compress="channel")]
CASES = ([("delta", 1, options) for options in DELTA] + [("delta", 3, options) for options in WIDE] +
         [("scale", 1, dict(ddl_per_feature=True)), ("gated", 1, {}), ("gated", 1, dict(ddl_f_norm=True, ddl_beta_max=3.0)), ("highway", 1, {}), ("laurel", 1, dict(ddl_laurel_rank=4)),
          ("hyper", 3, {}), ("hyper", 2, dict(ddl_hyper_dynamic=False)), ("mhc", 3, dict(ddl_sinkhorn_iterations=4))])


class Connected(torch.nn.Module):
    """The sublayers of a model of ddl_torch, with connections that hold its rules' parameters."""

    def __init__(self, model):
        super().__init__()
        cfg = self.config = model.config
        given = ("hidden_size", "ddl_residual", "ddl_value_channels", "ddl_streams")
        keys = {k: getattr(cfg, k) for k in ddl_torch.FIELDS if k not in given}
        self.model, self.connections = model, torch.nn.ModuleList()
        self.readout = ddl_connection.Readout(cfg.hidden_size, cfg.channels, cfg.ddl_residual, **keys)
        for block in model.transformer["h"]:
            for name, norm in zip(block.rules, (block.ln_1, block.ln_2)):
                connection = ddl_connection.Connection(cfg.hidden_size, cfg.channels, cfg.ddl_residual, norm=norm,
                                                       reader=getattr(block, "compress", None), index=len(self.connections), **keys)
                shapes = {k: p.shape for k, p in connection.rule.state_dict().items()}
                assert shapes == {k: p.shape for k, p in getattr(block, name).state_dict().items()}
                connection.rule = getattr(block, name)
                self.connections.append(connection)
        if hasattr(model, "readout"):
            self.readout.reader = model.readout

    def forward(self, tokens):
        X = ddl_connection.expand(self.model.transformer["wte"](tokens), self.config.channels)
        connections = iter(self.connections)
        for block in self.model.transformer["h"]:
            for norm, sublayer in ((block.ln_1, block.attn), (block.ln_2, block.mlp)):
                connection = next(connections)
                x_in, state = connection.read(X)
                X = connection.write(state, sublayer(norm(x_in)))
        return torch.nn.functional.linear(self.model.ln_f(self.readout(X)), self.model.transformer["wte"].weight)


def results(forward, model, tokens):
    model.zero_grad(set_to_none=True)
    logits = forward(tokens[:, :-1])
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    return logits.detach(), {k: None if p.grad is None else p.grad.clone() for k, p in model.named_parameters()}


def connections_equal_the_model():
    """Logits and all gradients of every rule are those of ddl_torch."""
    torch.manual_seed(1)
    tokens = torch.randint(0, SMALL["vocab_size"], (2, 12))
    for rule, channels, options in CASES:
        streams = dict(ddl_streams=channels) if rule in ("hyper", "mhc") else dict(ddl_value_channels=channels)
        model = ddl_torch.Model(ddl_torch.Config(**SMALL, ddl_residual=rule, **streams, **options)).double()
        with torch.no_grad():  # initial values such as 0 would hide errors
            for p in model.parameters():
                p.add_(0.1 * torch.randn_like(p))
        expected, grads = results(model, model, tokens)
        found, found_grads = results(Connected(model), model, tokens)
        what = f"{rule}, {channels} channels, {options}"
        assert torch.equal(found, expected), what
        for name, grad in grads.items():
            other = found_grads[name]
            assert (grad is None) == (other is None), f"{what}: {name}"
            if grad is not None:  # sums of the same terms; a gradient that is 0 has rounding errors only
                assert (grad - other).norm() <= 1e-12 * (grad.norm() + 1), f"{what}: {name}"


def initial_values_are_those_of_models():
    """A new connection starts as a sublayer of a new model: equal constants, equal standard deviations."""
    torch.manual_seed(2)
    for rule, channels, options in CASES:
        streams = dict(ddl_streams=channels) if rule in ("hyper", "mhc") else dict(ddl_value_channels=channels)
        model = ddl_torch.Model(ddl_torch.Config(**SMALL, ddl_residual=rule, **streams, **options))
        for index in range(2 * SMALL["num_hidden_layers"]):
            block = model.transformer["h"][index // 2]
            connection = ddl_connection.Connection(SMALL["hidden_size"], channels, rule, index=index, **options)
            theirs, ours = getattr(block, block.rules[index % 2]).state_dict(), connection.rule.state_dict()
            assert list(theirs) == list(ours), rule
            for name, expected in theirs.items():
                found, n, what = ours[name], expected.numel(), f"{rule}, {options}: {name}"
                if name == "v_proj.bias":  # uniform
                    assert found.abs().max() <= SMALL["hidden_size"] ** -0.5, what
                elif name.endswith("weight") and "norm" not in name and expected.any():  # normal
                    ratio = (found.square().mean() / expected.square().mean()).sqrt().item()
                    assert abs(ratio - 1) <= 6 / n**0.5, f"{what}: standard deviation times {ratio}"
                else:
                    assert torch.equal(found, expected), what


def a_norm_of_its_own():
    """Without a norm the gate reads an RMS norm of the connection, which is trained."""
    torch.manual_seed(3)
    connection = ddl_connection.Connection(8, 2)
    x_in, state = connection.read(ddl_connection.expand(torch.randn(2, 3, 8), 2))
    assert x_in.shape == (2, 3, 8)
    X = connection.write(state, torch.randn(2, 3, 8))
    assert X.shape == (2, 3, 8, 2)
    X.square().sum().backward()
    assert all(p.grad is not None for p in connection.parameters())
    again = connection(state.X, lambda x: torch.zeros_like(x))
    assert torch.equal(again, state.X)  # no direction, no step


def mixing_weights_of_large_logits_are_finite():
    """Logits whose exponentials float32 cannot represent, as in the C library."""
    weights = ddl_torch.MhcWeights(ddl_torch.Config(**SMALL))
    logits = torch.tensor([[100.0, 0.0, 0.0, 99.0]], requires_grad=True)
    M = weights(torch.zeros(1, 2), torch.zeros(1, 2), logits).mix
    torch.testing.assert_close(M, weights(torch.zeros(1, 2), torch.zeros(1, 2), logits - 60).mix)
    M[..., 0].sum().backward()
    assert logits.grad.isfinite().all()


def wrong_arguments_are_rejected():
    for arguments, text in (((8, 4, "gated"), "channels: expected 1 for the rule gated, found 4"),
                            ((8, 1, "deltas"), "rule: expected one of delta, "), ((8, 1, "add"), "rule: expected one of delta, ")):
        try:
            ddl_connection.Connection(*arguments)
        except ValueError as problem:
            assert text in str(problem), problem
            continue
        raise AssertionError(f"{arguments} were accepted")


def the_example_learns():
    done = subprocess.run([sys.executable, SOURCE / "examples/connection.py", "60"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        words = line.replace(",", "").split()
        start, end = float(words[words.index("loss") + 1]), float(words[-4])
        assert end < start - 0.2, line
    assert len(done.stdout.splitlines()) == 2, done.stdout


TESTS = [connections_equal_the_model, initial_values_are_those_of_models, a_norm_of_its_own, mixing_weights_of_large_logits_are_finite,
         wrong_arguments_are_rejected, the_example_learns]


def main():
    torch.set_num_threads(1)
    failed = 0
    for test in TESTS:
        try:
            test()
            print(f"[       OK ] {test.__name__}", flush=True)
        except Exception as problem:
            failed += 1
            print(f"{type(problem).__name__}: {problem}\n[  FAILED  ] {test.__name__}", flush=True)
    if failed:
        print(f" {failed} FAILED TEST(S)")
    sys.exit(1 if failed else 0)


main()
