"""Makes a case for `ddl verify`, a model with test vectors, from the PyTorch model (python/ddl_torch.py) in float64:

    python tests/python/make_case.py OUT ddl_residual=scale ddl_per_feature=true

Keys are those of ddl_torch.Config, values JSON or words. The parameters are random, not initial values, so that every
term of a rule has an effect. Needs torch (tests/python/torch_environment.sh).
"""
import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
sys.dont_write_bytecode = True
import ddl_torch

SMALL = dict(vocab_size=61, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, head_dim=12, block_size=64)


def rules(model):
    """The modules of the residual rules, in the order of the forward pass."""
    return [getattr(block, name) for block in model.transformer["h"] for name in block.rules]


class Trace:
    """Records gate, readout and target of every delta sublayer, by hooks."""

    def __init__(self, model):
        self.values = {}
        for rule in rules(model):
            for name, module in (("beta", "gate"), ("readout", "readout"), ("target", "target")):
                if isinstance(rule, ddl_torch.DeltaRule):
                    getattr(rule, module).register_forward_hook(lambda m, x, y, name=name: self.record(name, y, model.config.ddl_steps))

    def record(self, name, value, steps):
        """Gate and target of all steps of a sublayer are one tensor; the readout is recorded once a step."""
        parts = [value] if name == "readout" else value.chunk(steps, -1)
        self.values.setdefault(name, []).extend(part.squeeze(-1) if name == "beta" else part for part in parts)

    def tensors(self):
        return {name: torch.stack(rows).detach() for name, rows in self.values.items()}


def gradients(model):
    return {k: torch.zeros_like(p) if p.grad is None else p.grad for k, p in model.named_parameters()}


def expected_results(folder, tokens, targets):
    """The tensors of expect.safetensors: results, gradients and five optimizer steps of the model in a folder."""
    model = ddl_torch.load(folder, dtype=torch.float64)
    trace = Trace(model)
    made = {"tokens": tokens, "targets": targets, "logits": model(tokens).detach()} | trace.tensors()
    loss = model.loss(tokens, targets)
    loss.backward()
    made |= {"loss": loss.detach()} | {"grad." + k: g.clone() for k, g in gradients(model).items()}
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1), []
    for _ in range(5):
        optimizer.zero_grad(set_to_none=False)
        step = model.loss(tokens, targets)
        step.backward()
        losses.append(step.item())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    made["train_loss"] = torch.tensor(losses, dtype=torch.float64)
    made |= {"after." + k: p.detach() for k, p in model.named_parameters()}
    return {k: t if t.dtype == torch.int64 else t.float() for k, t in made.items()}


def value_of(text):
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def main(out, *settings):
    keys = {key: value_of(value) for key, value in (setting.split("=", 1) for setting in settings)}
    torch.manual_seed(0)
    model = ddl_torch.Model(ddl_torch.Config(**(SMALL | keys)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    ddl_torch.save(model, Path(out))
    tokens = torch.randint(0, model.config.vocab_size, (2, 13))
    made = expected_results(Path(out), tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
    ddl_torch.write_safetensors(Path(out) / "expect.safetensors", made, {})


if __name__ == "__main__":
    if len(sys.argv) < 2 or any("=" not in setting for setting in sys.argv[2:]):
        sys.exit("usage: make_case.py OUT [KEY=VALUE ...]")
    main(*sys.argv[1:])
