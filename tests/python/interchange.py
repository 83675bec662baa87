"""Tests that PyTorch (python/ddl_torch.py) loads models written by `ddl` with equal results, and vice versa.

Run by interchange.sh with DDL_SOURCE_DIR, DDL_PROGRAM and DDL_SCRATCH; prints results in cmocka's format. The models
are the golden cases, whose expected values come from a third implementation.
"""
import json
import logging
import math
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import torch

SOURCE, PROGRAM, SCRATCH = Path(os.environ["DDL_SOURCE_DIR"]), os.environ["DDL_PROGRAM"], Path(os.environ["DDL_SCRATCH"])
sys.path.insert(0, str(SOURCE / "python"))
sys.dont_write_bytecode = True
import ddl_torch
import make_case
from make_case import Trace, expected_results, gradients, rules

GOLDEN = sorted(p.parent for p in (SOURCE / "tests/golden").glob("*/expect.safetensors"))
LIMIT_LOGITS = 5e-6  # same as in `ddl verify`, for float32
LIMIT_EXACT = 1e-7  # in float64, compared with values stored as float32
WTE, HEAD = "transformer.wte.weight", "lm_head.weight"


def error(found, expected):
    found, expected = found.double(), expected.double()
    size = expected.square().mean().sqrt()
    return ((found - expected).square().mean().sqrt() / size).item() if size else found.abs().max().item()


def check(value, limit, what):
    if not value <= limit:
        raise AssertionError(f"{what}: {value:.3g}, limit {limit:.0e}")


def ddl(*arguments, status=0):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    if done.returncode != status:
        raise AssertionError(f"ddl {' '.join(map(str, arguments))}: status {done.returncode}: {done.stderr or done.stdout}")
    return done.stderr if status else done.stdout


def fresh(name):
    path = SCRATCH / name
    shutil.rmtree(path, ignore_errors=True)
    return path


# ---- tests -----------------------------------------------------------------------------------------------------


def golden_models_agree():
    """Logits, loss, gradients and traces of every golden case equal the expected ones."""
    for case in GOLDEN:
        expect, _ = ddl_torch.read_safetensors(case / "expect.safetensors")
        single = ddl_torch.load(case)
        check(error(single(expect["tokens"]).detach(), expect["logits"]), LIMIT_LOGITS, f"{case.name}: logits in float32")
        model = ddl_torch.load(case, dtype=torch.float64)
        trace = Trace(model)
        check(error(model(expect["tokens"]).detach(), expect["logits"]), LIMIT_EXACT, f"{case.name}: logits in float64")
        for name, value in trace.tensors().items():
            check(error(value, expect[name]), LIMIT_EXACT, f"{case.name}: {name}")
        loss = model.loss(expect["tokens"], expect["targets"])
        check(error(loss.detach(), expect["loss"]), LIMIT_EXACT, f"{case.name}: loss")
        loss.backward()
        grads = gradients(model)
        noise = 1e-12 * max(g.norm().item() for g in grads.values())  # mhc: gradients that are 0 up to rounding
        for name, grad in grads.items():
            expected = expect["grad." + name]
            if max(grad.norm().item(), expected.norm().item()) > noise:
                check(error(grad, expected), 1e-6, f"{case.name}: gradient of {name}")


def exports_round_like_torch():
    """ddl export in f32, and every fourth case in each dtype: rounds like torch, writes only the release's keys, preserves
    the model."""
    allowed = set(ddl_torch.RELEASE_KEYS) | set(ddl_torch.ALIASES)
    for i, case in enumerate(GOLDEN):
        tensors, _ = ddl_torch.read_tensors(case)
        original = ddl_torch.load(case)
        dtypes = (("f32", torch.float32), ("bf16", torch.bfloat16), ("f16", torch.float16))
        for name, dtype in dtypes if i % 4 == 0 else dtypes[:1]:
            out = fresh("exported")
            ddl("export", case, "--out", out, "--dtype", name, *(["--max-shard-size", "30KB"] if i % 3 == 0 else []))
            written, metadata = ddl_torch.read_tensors(out)
            assert torch.equal(written.pop(HEAD), written[WTE])
            assert metadata["format"] == "pt" and set(written) == set(tensors), case.name
            for k, t in tensors.items():
                assert torch.equal(written[k], t.to(dtype)) and written[k].dtype == dtype, f"{case.name}: {k} as {name}"
            keys = json.loads((out / "config.json").read_text())
            assert set(keys) <= allowed, f"{case.name}: unknown keys in config.json: {set(keys) - allowed}"
            again = ddl_torch.load(out)
            for k in ddl_torch.FIELDS:
                if k not in ("ddl_state_read_init", "ddl_state_shortconv_kernel_size"):  # 0 is written as its resolved default
                    a, b = getattr(original.config, k), getattr(again.config, k)
                    assert a == b or abs(a - b) <= 1e-7 * abs(a), f"{case.name}: {k} {a} became {b}"
            if name == "f32":
                tokens = torch.arange(11)[None] % original.config.vocab_size
                assert torch.equal(original(tokens), again(tokens)), case.name


def safetensors_library_reads_exports():
    try:
        from safetensors.torch import load_file
    except ImportError:
        return "safetensors is not installed"
    out = fresh("exported")
    ddl("export", SOURCE / "tests/golden/ddl-cc-ec", "--out", out, "--dtype", "bf16")
    theirs, (ours, _) = load_file(out / "model.safetensors"), ddl_torch.read_tensors(out)
    assert set(theirs) == set(ours) and all(torch.equal(theirs[k], ours[k]) for k in ours)
    assert torch.equal(theirs[HEAD], theirs[WTE])


def pretrained_class(declared):
    """A model class like those of the release: some declare the tied head, some only tie it."""
    from transformers import PretrainedConfig, PreTrainedModel

    class Settings(PretrainedConfig):
        model_type = "nanogpt"

    class GPT(PreTrainedModel):
        config_class = Settings
        shapes = {}
        if declared:
            _tied_weights_keys = {HEAD: WTE}

        def __init__(self, config):
            super().__init__(config)
            model = ddl_torch.Model(ddl_torch.config_from(config.to_diff_dict(), GPT.shapes, {}))
            self.body = [model]  # in a list: its parameters are registered once, without a prefix
            for name, child in model.named_children():
                setattr(self, name, child)
            self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
            self.lm_head.weight = self.transformer["wte"].weight
            self.post_init()

        def _init_weights(self, module):
            for p in module.parameters(recurse=False):
                torch.nn.init.normal_(p)  # parameters missing from a file become noise

        def forward(self, tokens):
            head = []
            self.body[0].ln_f.register_forward_hook(lambda m, x, y: head.append(y))
            self.body[0](tokens)
            scale = self.config.hidden_size_base / self.config.hidden_size if self.config.mup else 1.0
            return self.lm_head(head[-1]) * scale

    return GPT


def pretrained_models_load_and_save():
    """from_pretrained loads exports in one or several files; `ddl` reads the result of save_pretrained."""
    try:
        import transformers
    except ImportError:
        return "transformers is not installed"
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for declared in (True, False):
        GPT = pretrained_class(declared)
        for i, name in enumerate(("add", "ddl-1", "ddl-1-v-constant", "ddl-tc", "ddl-tc-ec", "ddl-cc", "ddl-cc-ec-mup")):
            out, back = fresh("exported"), fresh("back")
            expect, _ = ddl_torch.read_safetensors(SOURCE / "tests/golden" / name / "expect.safetensors")
            ddl("export", SOURCE / "tests/golden" / name, "--out", out, *(["--max-shard-size", "30KB"] if i % 2 else []))
            tensors, _ = ddl_torch.read_tensors(out)
            GPT.shapes = {k: tuple(t.shape) for k, t in tensors.items()}
            model, report = GPT.from_pretrained(out, output_loading_info=True)
            assert not any(report.values()), f"{name}: {report}"
            check(error(model(expect["tokens"]).detach(), expect["logits"]), LIMIT_LOGITS, f"{name}: logits after from_pretrained")
            if declared:
                model.save_pretrained(back)
                ddl("export", back, "--out", fresh("again"))
                again, _ = ddl_torch.read_tensors(SCRATCH / "again")
                assert set(again) == set(tensors) and all(torch.equal(again[k], tensors[k]) for k in tensors), name


def write_shuffled(path, tensors, metadata, rng):
    """Writes a valid but unusual file: shuffled names, keys of entries and data, and a padded header."""
    names, entries, data = list(tensors), {}, b""
    rng.shuffle(names)
    for name in names:
        raw = bytes(tensors[name].contiguous().reshape(-1).view(torch.uint8).numpy())
        code = {v: k for k, v in ddl_torch.DTYPES.items()}[tensors[name].dtype]
        entry = [("dtype", code), ("shape", list(tensors[name].shape)), ("data_offsets", [len(data), len(data) + len(raw)])]
        rng.shuffle(entry)
        entries[name] = dict(entry)
        data += raw
    order = list(entries.items()) + ([("__metadata__", metadata)] if metadata else [])
    rng.shuffle(order)
    header = json.dumps(dict(order), indent=rng.choice([None, 1])).encode()
    header += b" " * rng.randrange(0, 70)  # data may be unaligned
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


def write_expected(out, tokens, targets, rng):
    """Writes expect.safetensors of the model in the folder `out`."""
    write_shuffled(out / "expect.safetensors", expected_results(out, tokens, targets), None, rng)


def write_case(out, case, i, rng):
    """Writes a golden case with the model stored by torch and the expected results computed by torch."""
    dtype = list(ddl_torch.SHORT.values())[i % 4]
    model = ddl_torch.load(case)
    cfg = model.config
    ddl_torch.save(model, out, dtype=dtype)
    tensors, metadata = ddl_torch.read_tensors(out)
    only_ours = {cfg.rule(layer) for layer in range(cfg.num_hidden_layers)} - {"add", "delta"}
    from_metadata = only_ours or cfg.value_residual or cfg.dense_average or cfg.ddl_update != "delta" or cfg.ddl_v_input != "stream"
    keys = json.loads((out / "config.json").read_text())
    if i % 3 == 0:
        del tensors[HEAD]
    elif i % 3 == 1:
        del tensors[WTE]  # as done by savers that store tied tensors once
    items = list(keys.items()) + [("dropout", 0.0), ("use_k_shift", False), ("model_type", "nanogpt-pro")]
    rng.shuffle(items)
    (out / "config.json").write_text(json.dumps(dict(items)))
    # The release does not write our metadata: names and shapes must be sufficient.
    write_shuffled(out / "model.safetensors", tensors, metadata if from_metadata else None, rng)
    expect, _ = ddl_torch.read_safetensors(case / "expect.safetensors")
    write_expected(out, expect["tokens"], expect["targets"], rng)


def ddl_verifies_models_stored_by_torch():
    """Every golden model stored by torch in F64, F32, F16 or BF16: `ddl verify` agrees with the results of torch."""
    rng, cases = random.Random(4), fresh("cases")
    cases.mkdir(parents=True)
    for i, case in enumerate(GOLDEN):
        write_case(cases / case.name, case, i, rng)
    result = json.loads(ddl("verify", cases, "--backend", "cpu", "--json"))
    assert result["passed"] == len(GOLDEN) and result["failed"] == result["skipped"] == 0, result


def ddl_verifies_controls():
    """Models without golden vectors: `ddl verify` agrees with the results of torch."""
    rng, cases, delta = random.Random(5), fresh("controls"), dict(ddl_residual="delta")
    controls = [delta | dict(ddl_beta_constant=True), delta | dict(ddl_beta_constant=True, ddl_beta_constant_value=0.4, ddl_value_channels=3),
                dict(ddl_residual="gated", ddl_beta_constant=True, ddl_beta_constant_value=0.6, ddl_beta_single_linear=False),
                dict(mlp_size=200), delta | dict(mlp_size=39)]
    # Odd widths, heads narrower and wider than the model, blocks longer than the depth or that do not divide it, one layer.
    odd = dict(hidden_size=37, num_attention_heads=3, head_dim=10, mlp_size=41)
    controls += [odd | dict(ddl_residual="attnres", ddl_attnres_block=block, num_hidden_layers=layers) for block, layers in ((1, 1), (2, 1), (4, 3), (5, 4), (64, 2))]
    controls += [odd | dict(ddl_f_norm=True, num_hidden_layers=1), odd | dict(ddl_residual="laurel", ddl_laurel_rank=3, ddl_f_norm=True),
                 odd | dict(ddl_residual_by_layer=["highway", "delta", "gated"], ddl_f_norm=True, ddl_beta_max=0.7),
                 odd | delta | dict(ddl_beta_max=1.0, ddl_steps=2, ddl_value_channels=3, ddl_compress="channel", head_dim=16),
                 odd | dict(ddl_residual="gated", ddl_beta_max=5.0, ddl_beta_init=4.5, dense_average=True, dense_period=2),
                 odd | dict(ddl_residual="mhc", ddl_residual_by_layer=["laurel", "delta", "add"]),
                 dict(head_dim=96, rope_ratio=1 / 3), dict(head_dim=96, rope_ratio=5 / 12), dict(head_dim=20, rope_ratio=0.7)]
    torch.manual_seed(6)
    for i, changes in enumerate(controls):
        out = cases / f"case-{i}"
        model = ddl_torch.Model(ddl_torch.Config(**(SMALL | changes)))
        if changes.get("ddl_residual") == "attnres":
            for name, weight in model.named_parameters():
                if ".query." in name or name == "readout.query.weight":
                    torch.nn.init.normal_(weight)
        ddl_torch.save(model, out)
        tokens = torch.randint(0, SMALL["vocab_size"], (2, 13))
        write_expected(out, tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), rng)
    make_case.main(cases / "made", "ddl_residual=highway", "ddl_per_feature=true", "hidden_size=28")
    for precision in (["--backend", "cpu"], ["--backend", "ref"]):
        result = json.loads(ddl("verify", cases, *precision, "--json"))
        assert result["passed"] == len(controls) + 1 and result["failed"] == result["skipped"] == 0, result


def files_of_torch_load():
    """ddl reads what torch.save writes: the release's file, shards, a training script's checkpoint, other protocols and types."""
    for name in ("ddl-tc-ec", "add"):
        case = SOURCE / "tests/golden" / name
        tensors, _ = ddl_torch.read_tensors(case)
        tensors |= {HEAD: tensors[WTE]}
        keys = json.loads((case / "config.json").read_text())
        release = json.dumps({k: v for k, v in keys.items() if k in ddl_torch.RELEASE_KEYS})

        def check(files, config=True):
            folder, out = fresh("pickle"), fresh("exported")
            folder.mkdir(parents=True)
            if config:
                (folder / "config.json").write_text(release)
            files(folder)
            ddl("export", folder, "--out", out)
            assert json.loads(ddl("info", folder, "--json"))["preset"] == json.loads(ddl("info", case, "--json"))["preset"]
            written, _ = ddl_torch.read_tensors(out)
            assert set(written) == set(tensors) and all(torch.equal(written[k], tensors[k]) for k in tensors)
            return folder

        def checkpoint(folder):
            model = {"_orig_mod." + k: torch.nn.Parameter(t) for k, t in tensors.items()}
            optimizer = torch.optim.AdamW(model.values(), fused=False)
            for p in model.values():
                p.grad = torch.zeros_like(p)
            optimizer.step()
            model = {k: t for k, t in zip(model, [torch.nn.Parameter(t) for t in tensors.values()])}
            torch.save({"model": model, "optimizer": optimizer.state_dict(), "model_args": json.loads(release), "iter_num": 7,
                        "best_val_loss": torch.tensor(3.5), "config": {"out_dir": "out", "lr": 6e-4, "compile": True, "betas": (0.9, 0.95)}},
                       folder / "ckpt.pt")

        def shards(folder):
            names, weight_map = list(tensors), {}
            for i, part in enumerate((names[::2], names[1::2])):
                file = f"pytorch_model-{i + 1:05}-of-00002.bin"
                torch.save({k: tensors[k] for k in part}, folder / file)
                weight_map |= {k: file for k in part}
            (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))

        for protocol in (2, 4, 5):
            check(lambda folder: torch.save(tensors, folder / "pytorch_model.bin", pickle_protocol=protocol))
        one = torch.cat([t.flatten() for t in tensors.values()])  # views of one storage
        views = dict(zip(tensors, (v.view(t.shape) for v, t in zip(one.split([t.numel() for t in tensors.values()]), tensors.values()))))
        check(lambda folder: torch.save(views, folder / "pytorch_model.bin"))
        check(shards)
        check(checkpoint)
        check(checkpoint, config=False)
        check(lambda folder: (checkpoint(folder), (folder / "ckpt.pt").rename(folder / "pytorch_model.bin")), config=False)

        folder = check(lambda folder: torch.save(tensors, folder / "pytorch_model.bin"))
        out = fresh("converted")
        subprocess.run([sys.executable, SOURCE / "python/ddl_torch.py", "convert", folder, out], check=True)
        written, _ = ddl_torch.read_tensors(out)
        assert all(torch.equal(written[k], tensors[k]) for k in tensors)
        file = folder / "pytorch_model.bin"
        torch.save(tensors, file, _use_new_zipfile_serialization=False)
        assert "since PyTorch 1.6, found the older format; convert the file" in ddl("info", folder, status=1)
        torch.save(tensors | {WTE: tensors[WTE].t().contiguous().t()}, file)
        assert f"{WTE} is not contiguous" in ddl("info", folder, status=1)
        torch.save({"model": torch.nn.Linear(2, 2)}, file)
        assert "the pickle uses torch.nn.modules.linear.Linear: expected only what tensors need" in ddl("info", folder, status=1)
        torch.save(tensors, file)
        data = bytearray(file.read_bytes())
        at = bytes(data).index(bytes(tensors["ln_f.weight"].numpy().tobytes()))
        data[at] ^= 1
        file.write_bytes(data)
        assert "is corrupted: expected CRC-32" in ddl("export", folder, "--out", fresh("exported"), status=1)


def invalid_folders_are_rejected():
    case = SOURCE / "tests/golden/ddl-cc-ec"
    tensors, metadata = ddl_torch.read_tensors(case)

    def rejected(changed, message, **options):
        folder = fresh("bad")
        folder.mkdir(parents=True)
        shutil.copy(case / "config.json", folder)
        ddl_torch.write_safetensors(folder / "model.safetensors", changed, metadata)
        try:
            ddl_torch.load(folder, **options)
        except ValueError as problem:
            assert message in str(problem), problem
            return
        assert not message, f"loaded, expected error: {message}"

    rejected({k: t for k, t in tensors.items() if k != "readout.read"}, "these tensors are missing: readout.read")
    rejected(tensors | {"rotary.inv_freq": torch.ones(3)}, "these tensors are not parameters")
    rejected(tensors | {"rotary.inv_freq": torch.ones(3)}, "", ignore_extra=True)
    rejected(tensors | {"ln_f.weight": torch.ones(3)}, "ln_f.weight has shape (3,), config.json requires (24,)")
    for head in (tensors[WTE] + 1, tensors[WTE].double(), tensors[WTE][1:]):
        rejected(tensors | {HEAD: head}, "lm_head.weight differs")
    diverged, zero = torch.full_like(tensors[WTE], math.nan), torch.zeros_like(tensors[WTE])
    rejected(tensors | {WTE: diverged, HEAD: diverged.clone()}, "")
    rejected(tensors | {WTE: zero, HEAD: -zero}, "lm_head.weight differs")


def rejection(changes):
    """A saved model with other keys in config.json: the error of ddl_torch.load, and that of ddl."""
    folder = fresh("rejected")
    ddl_torch.save(ddl_torch.Model(ddl_torch.Config(**SMALL)), folder)
    keys = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps({key: value for key, value in keys.items() if value is not None}))
    try:
        ddl_torch.load(folder)
    except ValueError as problem:
        return str(problem), ddl("info", folder, status=1)
    raise AssertionError(f"{describe(changes)} was accepted")


def invalid_configurations_are_rejected():
    """Values and combinations that ddl rejects, with its error messages."""
    def by_layer(*names):
        return dict(ddl_residual_by_layer=list(names))

    delta, constant, ignored = dict(ddl_residual="delta"), dict(ddl_beta_constant=True), dict(ddl_map="v", ddl_update="erase")
    one_channel = ("add", "scale", "gated", "highway", "hyper", "mhc", "laurel", "attnres")
    values = "value_residual: expected layers that all depend on the output of attention, but with this update the rule delta of layer 1 does not"
    cases = [(dict(ddl_residual="deltas"), "ddl_residual: 'deltas' is none of add, delta, scale, gated, highway, hyper, mhc, laurel, attnres"),
             (dict(ddl_map="q"), "ddl_map: 'q' is none of k, v"), (dict(ddl_update="wrote"), "ddl_update: 'wrote' is none of delta, write, erase"),
             (dict(ddl_v_input="x"), "ddl_v_input: 'x' is none of stream, context"), (dict(ddl_embed="x"), "ddl_embed: 'x' is none of repeat, conv"),
             (dict(ddl_compress="x"), "ddl_compress: 'x' is none of token, channel, mix"),
             *((dict(ddl_residual=rule, ddl_value_channels=4), f"ddl_value_channels is 4, but ddl_residual {rule} has only 1") for rule in one_channel),
             (by_layer("add", "delta"), "ddl_residual_by_layer: 2 rules, num_hidden_layers is 3"),
             (by_layer("add", "deltas", "add"), "ddl_residual_by_layer: 'deltas' is none of add, delta, scale, gated, highway, hyper, mhc, laurel, attnres"),
             (by_layer("add", "delta", "add") | dict(ddl_value_channels=2), "ddl_residual_by_layer needs ddl_value_channels 1, found 2"),
             (by_layer("add", "mhc", "add"), "ddl_residual_by_layer: expected rules whose state is one vector, found mhc, whose state all layers "
                                             "would share; set ddl_residual to mhc instead"),
             (dict(ddl_residual="attnres", dense_average=True), "dense_average: expected false with ddl_residual attnres, found true"),
             (delta | dict(ddl_v_sigmoid_scale=0.0), "ddl_v_sigmoid_scale: expected another number than 0"),
             (delta | dict(ddl_map="v", ddl_steps=3), "ddl_steps is 3, but ddl_map is v: several steps need ddl_map k"),
             (delta | constant | dict(ddl_beta_constant_value=2.5), "ddl_beta_constant_value: 2.5 is out of range (0 to ddl_beta_max, 2)"),
             (delta | constant | dict(ddl_beta_max=0.5, ddl_beta_init=0.2), "ddl_beta_constant_value: 1 is out of range (0 to ddl_beta_max, 0.5)"),
             (delta | dict(ddl_beta_init=2.5), "ddl_beta_init: 2.5 is out of range (0 to 2)"),
             (dict(ddl_residual="gated", ddl_beta_init=3.0, ddl_beta_max=3.0), "ddl_beta_init: 3 is out of range (above 0 to below ddl_beta_max, 3)"),
             (delta | dict(ddl_beta_init=0.0, ddl_beta_max=3.0), "ddl_beta_init: 0 is out of range (above 0 to below ddl_beta_max, 3)"),
             (by_layer("add", "delta", "add") | ignored | dict(value_residual=True), values),
             (by_layer("add", "delta", "delta") | dict(value_residual=True, ddl_map="v", ddl_v_constant=True, ddl_v_dim1_constant=True), values),
             (delta | dict(ddl_f_norm=True), "ddl_f_norm: expected a layer with the rule add, scale, gated, highway or laurel, found none"),
             (dict(hidden_size=None), "no key hidden_size: not a model of ddl or of the authors' release")]
    for changes, message in cases:
        found, theirs = rejection(changes)
        assert found.endswith(f"config.json: {message}"), found
        assert f"config.json: {message}\n" in theirs, theirs
    accepted = [delta | ignored | dict(value_residual=True), delta | dict(ddl_v_sigmoid_scale=0.0, ddl_v_constant=True),
                dict(ddl_v_sigmoid_scale=0.0), dict(ddl_map="v", ddl_steps=3), delta | dict(ddl_beta_constant_value=2.5),
                delta | dict(ddl_beta_init=0.0), delta | dict(ddl_beta_init=2.0), constant | dict(ddl_beta_init=2.5, ddl_beta_constant_value=2.5),
                by_layer("add", "delta", "add") | dict(ddl_f_norm=True, dense_average=True)]
    for changes in accepted:
        ddl_torch.Config(**(SMALL | changes))


def switches_of_the_release():
    """Settings of the release that models here do not have: an error where they have an effect, as in ddl."""
    for key, value, message in (("rms_norm_eps", 1e-6, "rms_norm_eps is 1e-06, expected 1e-05: other models are not supported"),
                                ("residual_branch_mult", 0.5, "residual_branch_mult is 0.5, expected 1: other models are not supported"),
                                ("q_activation", "silu", 'q_activation is "silu", expected null: other models are not supported'),
                                ("use_k_shift", True, "use_k_shift is true, expected false: other models are not supported"),
                                ("using_groupnorm", 1, "using_groupnorm is 1, expected false: other models are not supported"),
                                ("tie_word_embeddings", False, "tie_word_embeddings is false, expected true: other models are not supported"),
                                ("ddl_v_constant", True, "ddl_v_constant and ddl_v_dim1_constant are the same setting and differ")):
        found, theirs = rejection({key: value})
        assert found.endswith(f"config.json: {message}"), found
        assert f"config.json: {key} " in theirs, theirs

    neutral = {key: value for key, (value, _) in ddl_torch.SWITCHES.items()}
    warned, handler, records = fresh("warned"), logging.Handler(), []
    handler.emit = records.append
    ddl_torch.save(ddl_torch.Model(ddl_torch.Config(**SMALL)), warned)
    keys = json.loads((warned / "config.json").read_text())
    ddl_torch.LOG.addHandler(handler)
    try:
        for changes, messages in ((neutral | dict(model_type="DDL", architectures=["X"], rms_norm_eps=1e-5, dropout=0.0), []),
                                  (dict.fromkeys(neutral), []), (dict(ddl_v_constant_value=2), []),
                                  (dict(head_dims=3), ["unknown key 'head_dims'; it is ignored"]),
                                  (dict(dropout=0.1), ["dropout is 0.1: no model of the release reads it, and there is no dropout here; ignored"]),
                                  (dict(bias=True), ["bias is true: no model of the release reads it, and none has biases in its layers; ignored"])):
            records.clear()
            (warned / "config.json").write_text(json.dumps(keys | changes))
            ddl_torch.load(warned)
            ddl("info", warned)
            assert [r.getMessage() for r in records] == [f"{warned}/config.json: {message}" for message in messages], records
    finally:
        ddl_torch.LOG.removeHandler(handler)


def rotated_dimensions_agree_with_ddl():
    """Those of tests/model/test_config.c; ddl_verifies_controls compares models."""
    for ratio, width, expected in ((1.0, 16, 16), (1.0, 7, 6), (0.5, 10, 4), (0.0, 16, 0), (0.7, 20, 14), (0.25, 4, 0), (1.0, 1, 0), (0.6, 10, 6),
                                   (1 / 3, 96, 32), (0.33333334, 96, 32), (0.3333333, 96, 32), (5 / 12, 96, 40)):
        found = ddl_torch.Config(**(SMALL | dict(head_dim=width, rope_ratio=ratio))).rotated
        assert found == expected, f"rope_ratio {ratio} of {width}: {found}"


def saved_models_replace_those_of_ddl():
    """save removes the checksums of the files that it replaces."""
    out = fresh("exported")
    ddl("export", SOURCE / "tests/golden/ddl-tc", "--out", out)
    assert (out / "checksums.json").exists()
    model = ddl_torch.load(out)
    with torch.no_grad():
        model.ln_f.weight.mul_(1.5)
    ddl_torch.save(model, out)
    ddl("export", out, "--out", fresh("again"))
    again, _ = ddl_torch.read_tensors(SCRATCH / "again")
    assert torch.equal(again["ln_f.weight"], model.ln_f.weight)


SMALL = dict(vocab_size=304, hidden_size=96, num_hidden_layers=3, num_attention_heads=2, head_dim=32, block_size=64)


def configurations():
    """Small configurations: every rule, gate, target, direction, compressor and embedding; streams, sums of states, steps."""
    delta = dict(ddl_residual="delta")
    one_channel = [dict(ddl_residual="add"), dict(mlp_size=77), dict(output_init_std_factor=3.0), delta, delta | dict(ddl_map="v"), delta | dict(ddl_map="v", ddl_k_rank=5),
                   delta | dict(ddl_beta_single_linear=False, ddl_beta_hidden_size=24, ddl_beta_init=0.3),
                   delta | dict(ddl_v_constant=True), delta | dict(ddl_v_sigmoid=False), delta | dict(ddl_v_input="context"),
                   delta | dict(ddl_update="erase"), delta | dict(ddl_update="write", ddl_beta_init=2.0),
                   delta | dict(ddl_beta_constant=True), dict(ddl_residual="gated", ddl_beta_constant=True, ddl_beta_constant_value=0.5)]
    for rule in ("scale", "gated", "highway"):
        one_channel.append(dict(ddl_residual=rule, ddl_scale_init=0.7, ddl_highway_init=0.25))
        one_channel.append(dict(ddl_residual=rule, ddl_per_feature=rule != "gated", ddl_beta_single_linear=False))
    one_channel.append(dict(ddl_residual_by_layer=["gated", "delta", "highway"]))
    one_channel += [dict(ddl_residual="laurel"), dict(ddl_residual="laurel", ddl_laurel_rank=7), dict(value_residual=True),
                    dict(ddl_residual_by_layer=["laurel", "delta", "add"], ddl_laurel_rank=5, value_residual=True)]
    one_channel += [dict(ddl_residual=rule, ddl_residual_by_layer=["add", "delta", "gated"]) for rule in ("hyper", "mhc", "attnres")]
    one_channel += [delta | dict(ddl_beta_max=1.0), dict(ddl_residual="gated", ddl_beta_max=3.0, ddl_beta_init=2.5),
                    dict(ddl_f_norm=True), dict(ddl_residual="scale", ddl_per_feature=True, ddl_f_norm=True),
                    dict(ddl_residual_by_layer=["highway", "delta", "laurel"], ddl_f_norm=True)]
    expanded = [delta | dict(ddl_value_channels=c, ddl_compress=compress, ddl_embed=embed, ddl_map=m, ddl_state_read_init=read)
                for c, compress, embed, m, read in ((4, "token", "repeat", "k", 0.0), (3, "channel", "conv", "k", 0.4),
                                                    (2, "mix", "conv", "v", 0.0))]
    streams = [dict(ddl_residual="hyper"), dict(ddl_residual="hyper", ddl_streams=3, ddl_hyper_dynamic=False),
               dict(ddl_residual="mhc"), dict(ddl_residual="mhc", ddl_streams=2, ddl_sinkhorn_iterations=3, dense_average=True)]
    depth = [dict(ddl_residual="attnres"), dict(ddl_residual="attnres", ddl_attnres_block=4, value_residual=True)]
    sums = [dict(dense_average=True), dict(dense_average=True, dense_dilation=2, ddl_residual="gated"),
            dict(dense_average=True, dense_period=2, value_residual=True)]
    steps = [delta | dict(ddl_steps=2),
             delta | dict(ddl_steps=3, ddl_value_channels=2, ddl_compress="channel", ddl_embed="conv", dense_average=True),
             delta | dict(ddl_steps=2, ddl_update="write", ddl_v_input="context", ddl_beta_single_linear=False)]
    return [SMALL | changes for changes in one_channel + expanded + streams + depth + sums + steps]


def has_gradient(model, name):
    """Whether the first backward pass of a new model reaches a parameter."""
    cfg = model.config
    if ".v_proj." in name and (cfg.ddl_v_constant or cfg.ddl_update == "erase"):
        return False
    if cfg.ddl_beta_constant and ".beta" in name:
        return False
    if cfg.ddl_residual == "hyper":  # the dynamic weights are 0
        return not name.endswith((".alpha.scale", ".beta.scale", ".norm.weight"))
    if cfg.ddl_residual == "attnres" and (".res_" in name or name.startswith("readout.")):
        return not name.endswith(".norm.weight") and ".0.res_attn." not in name  # queries are 0; one source
    return not name.endswith(".down.weight")  # laurel: U is 0


def describe(changes):
    return ", ".join(f"{k}={v}" for k, v in changes.items() if k not in SMALL)


def every_parameter_of_a_new_model_learns():
    """One backward pass from the initial values reaches every parameter that has an effect."""
    torch.manual_seed(1)
    for changes in configurations():
        model = ddl_torch.Model(ddl_torch.Config(**changes))
        tokens = torch.randint(0, 304, (2, 16))
        loss = model.loss(tokens[:, :-1], tokens[:, 1:])
        assert abs(loss.item() - math.log(304)) < 0.5, f"{describe(changes)}: initial loss {loss.item()}"
        loss.backward()
        for name, grad in gradients(model).items():
            assert not has_gradient(model, name) or grad.count_nonzero() > 0, f"{describe(changes)}: {name} has no gradient"


def initial_values_agree_with_ddl():
    """Model(Config(...)) starts as `ddl train` does: equal constants, equal standard deviations."""
    torch.manual_seed(1)
    text = fresh("initial.txt")
    text.write_text((SOURCE / "LICENSE").read_text() * 20)
    vocabulary, shards = fresh("initial.json"), fresh("initial-shards")
    ddl("tokenizer", "train", text, "--vocab-size", 300, "--overwrite", "--out", vocabulary)
    ddl("data", "build", text, "--tokenizer", vocabulary, "--out", shards)
    for changes in configurations():
        flags = {k: ",".join(v) if isinstance(v, list) else str(v).lower() for k, v in changes.items()}
        run = fresh("initial")
        ddl("train", *(part for k, v in flags.items() for part in ("--" + k.replace("_", "-"), v)), "--train-data", shards,
            "--out", run, "--steps", 1, "--lr", 0, "--val-every", 0, "--seq", 8, "--batch", 1, "--warmup", 0)
        model = ddl_torch.Model(ddl_torch.Config(**changes))
        theirs, ours = ddl_torch.load(run).state_dict(), model.state_dict()
        assert list(theirs) == list(ours), describe(changes)
        for name, expected in theirs.items():
            found, what = ours[name], f"{describe(changes)}: {name}"
            assert found.shape == expected.shape, what
            n = expected.numel()
            constant = name.endswith(("embed.conv.weight", "alpha.static", "res.bias")) or ".dwa." in name
            if constant or (expected == expected.flatten()[0]).all() and not name.endswith("v_proj.bias"):
                assert torch.equal(found, expected), what
            elif name.endswith("v_proj.bias"):  # uniform; too few values for a standard deviation
                limit = 1 / math.sqrt(model.config.hidden_size)
                assert 0 < found.abs().max() <= limit and expected.abs().max() <= limit, what
            else:  # standard deviations of n samples differ by about 1/sqrt(n), relative
                ratio = (found.std() / expected.std()).item()
                assert abs(ratio - 1) <= 6 / math.sqrt(n), f"{what}: standard deviation times {ratio}"
                assert abs(found.mean()) <= 6 * expected.std() / math.sqrt(n), f"{what}: mean {found.mean()}"


def streams_and_sums_start_as_additions():
    """Initial values of docs/formats.md: rules with streams and averages between blocks start close to the baseline's
    function, and sublayer s of hyper reads stream s mod n."""
    torch.manual_seed(3)
    plain = ddl_torch.Model(ddl_torch.Config(**SMALL, embedding_init_std=10.0))  # a stream whose norms have no visible epsilon
    tokens = torch.randint(0, 304, (2, 9))
    for changes in (dict(ddl_residual="hyper"), dict(ddl_residual="hyper", ddl_hyper_dynamic=False), dict(dense_average=True)):
        model = ddl_torch.Model(ddl_torch.Config(**SMALL, **changes))
        model.load_state_dict(plain.state_dict(), strict=False)
        check(error(model(tokens).detach(), plain(tokens).detach()), 1e-5, describe(changes))
    hyper = ddl_torch.Model(ddl_torch.Config(**SMALL, ddl_residual="hyper"))
    for s, rule in enumerate(rules(hyper)):
        expected = torch.cat([torch.eye(4)[:, s % 4 : s % 4 + 1], torch.eye(4)], dim=1)
        assert torch.equal(rule.alpha.static, expected) and torch.equal(rule.beta.static, torch.ones(4))
    mhc = rules(ddl_torch.Model(ddl_torch.Config(**SMALL, ddl_residual="mhc")))[0]
    assert torch.equal(mhc.res.bias.view(4, 4), 4 * torch.eye(4) - 4) and not mhc.pre.bias.any() and not mhc.post.bias.any()
    assert all(part.scale.item() == torch.tensor(0.01).item() for part in (mhc.pre, mhc.post, mhc.res))
    mixing = mhc.mixing(torch.randn(2, 3, SMALL["hidden_size"], 4))
    for dim in (-1, -2):
        check((mixing.mix.sum(dim) - 1).abs().max().item(), 1e-3, "sums of the mixing matrix")


def saved_models_load_again():
    """save and load keep every key and every tensor."""
    for changes in configurations():
        model, out = ddl_torch.Model(ddl_torch.Config(**changes)), fresh("saved")
        ddl_torch.save(model, out)
        again, tokens = ddl_torch.load(out), torch.arange(9)[None]
        for k in ddl_torch.FIELDS:
            if k not in ("ddl_state_read_init", "ddl_state_shortconv_kernel_size"):  # 0 is written as its resolved default
                assert getattr(model.config, k) == getattr(again.config, k), f"{describe(changes)}: {k}"
        assert torch.equal(model(tokens), again(tokens)), describe(changes)


def hooks_watch_and_replace_values():
    """Outputs of .direction, .target, .readout and .gate are the values of the update; a hook can replace them."""
    torch.manual_seed(2)
    for changes in configurations():
        if changes.get("ddl_residual") in ("hyper", "mhc", "attnres") or changes.get("ddl_steps", 1) > 1:
            continue  # their updates are not one step from X and f
        model, seen = ddl_torch.Model(ddl_torch.Config(**changes)), {}
        keys = set(model.state_dict())
        for rule in rules(model):
            rule.register_forward_hook(lambda m, x, y, rule=rule: seen.setdefault(rule, {}).update(rule=(x, y)))
            for name in ("gate", "direction", "target", "readout"):
                if hasattr(rule, name):
                    getattr(rule, name).register_forward_hook(
                        lambda m, x, y, rule=rule, name=name: seen.setdefault(rule, {}).update({name: y}))
        tokens = torch.randint(0, 304, (2, 9))
        logits = model(tokens)
        assert set(model.state_dict()) == keys and len(seen) == len(rules(model))
        for rule, values in seen.items():
            (X, f, *others), found = values["rule"]
            what = f"{describe(changes)}: {type(rule).__name__}"
            if isinstance(rule, ddl_torch.DeltaRule):
                k, v, beta, readout = (values[name] for name in ("direction", "target", "gate", "readout"))
                assert k.shape == X.shape[:3] and v.shape == readout.shape == (*X.shape[:2], X.shape[3]) and beta.shape == (2, 9, 1)
                check((k.norm(dim=-1) - 1).abs().max().item(), 1e-3, f"{what}: length of k")
                error_of = {"delta": v - readout, "write": v, "erase": -readout}[model.config.ddl_update]
                expected = X + torch.einsum("btd,btc->btdc", k, beta * error_of)
            elif isinstance(rule, ddl_torch.HighwayRule):
                assert ((values["gate"] > 0) & (values["gate"] < 1)).all(), what
                expected = X + values["gate"][..., None] * (f[..., None] - X)
            elif isinstance(rule, ddl_torch.GatedRule):
                assert ((values["gate"] > 0) & (values["gate"] < model.config.ddl_beta_max)).all(), what
                expected = X + (values["gate"] * f)[..., None]
            elif isinstance(rule, ddl_torch.LaurelRule):
                m = 2 * rule.mix.softmax(-1)
                low = rule.up(rule.down(X[..., 0]))[..., None] if hasattr(rule, "up") else 0
                expected = m[0] * f[..., None] + m[1] * (X + low)
            else:
                expected = X + (rule.scale * f)[..., None]
            check(error(found.detach(), expected.detach()), 1e-5, what)
        gates = [rule.gate for rule in rules(model) if hasattr(rule, "gate")]
        for gate in gates:
            gate.register_forward_hook(lambda m, x, y: torch.zeros_like(y))
        if gates:
            assert not torch.equal(model(tokens), logits)
        for rule in rules(model):
            (X, *_), found = seen[rule]["rule"]
            assert not hasattr(rule, "gate") or torch.equal(X, found), f"{describe(changes)}: closed gate changed the state"


def run_and_checkpoint_load():
    """A run folder of `ddl train`, its checkpoint and their exports load as the same model."""
    run, text, shards, vocabulary = fresh("run"), fresh("text"), fresh("shards"), SCRATCH / "tokenizer.json"
    text.mkdir(parents=True)
    (text / "a.txt").write_text((SOURCE / "LICENSE").read_text() * 20)
    ddl("tokenizer", "train", text / "a.txt", "--vocab-size", 300, "--overwrite", "--out", vocabulary)
    ddl("data", "build", text / "a.txt", "--tokenizer", vocabulary, "--out", shards)
    ddl("train", "--model", "ddl-cc-ec", "--size", "micro", "--vocab-size", 304, "--hidden-size", 32, "--num-hidden-layers", 2,
        "--train-data", shards, "--tokenizer", vocabulary, "--out", run, "--steps", 4, "--checkpoint-every", 2,
        "--val-every", 0, "--seq", 32, "--batch", 2, "--warmup", 1)
    checkpoints = sorted(run.glob("checkpoint-*"))
    assert checkpoints
    tokens = torch.arange(32)[None]
    expected = ddl_torch.load(run)(tokens)
    for source in (run, checkpoints[-1]):
        keys = json.loads((source / "config.json").read_text())
        assert not set(keys) - set(ddl_torch.RELEASE_KEYS) - set(ddl_torch.ALIASES), source
        out = fresh("exported")
        ddl("export", source, "--out", out)
        assert (out / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()
        model = ddl_torch.load(out)
        assert torch.equal(model(tokens), expected), source
        copy = fresh("copy")
        ddl_torch.save(model, copy)
        assert (copy / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()
        assert ddl("tokenizer", "info", copy) == ddl("tokenizer", "info", source)


def models_of_a_run_are_chosen():
    """load takes the newest saved model of a run folder, or the one that `which` names, as ddl does."""
    run, shards, flags = fresh("chosen"), SCRATCH / "shards", ["--checkpoint-every", 2, "--val-every", 2, "--keep-last", 0]
    recipe = ["--model", "ddl-cc-ec", "--size", "micro", "--vocab-size", 304, "--hidden-size", 32, "--num-hidden-layers", 2,
              "--train-data", shards, "--val-data", shards, "--val-tokens", 256, "--seq", 32, "--batch", 2, "--warmup", 1,
              "--lr", 0.02, "--quiet", "--out", run]

    def agree(which, name):
        model = ddl_torch.load(run, which=which)
        assert model.folder == (run if name == "final" else run / name), f"{which}: {model.folder}"
        out = fresh("exported")
        ddl("export", run, "--which", which, "--out", out)
        tokens = torch.arange(32)[None]
        assert torch.equal(ddl_torch.load(out)(tokens), model(tokens)), which

    def refused(which, text):
        try:
            ddl_torch.load(run, which=which)
        except (OSError, ValueError) as problem:
            assert text in str(problem), problem
            return
        raise AssertionError(f"which={which!r} was accepted")

    ddl("train", *recipe, *flags, "--steps", 4)
    agree("last", "final")
    refused("3", "chosen: expected a checkpoint of step 3, found checkpoint-2, checkpoint-4, the final model (step 4)")
    refused("newest", "expected last, best, final or a step, found 'newest'")
    ddl("train", *recipe, *flags, "--steps", 8, "--resume")
    shutil.rmtree(run / "checkpoint-8")
    agree(8, "final")
    # A finished run that was resumed with more steps: checkpoint-8 is that of a run of 12 steps, the final model is older.
    final = {name: (run / name).read_bytes() for name in ("model.safetensors", "config.json", "checksums.json")}
    ddl("train", *recipe, *flags, "--steps", 12, "--resume")
    for name, content in final.items():
        (run / name).write_bytes(content)
    agree("last", "checkpoint-12")
    agree("final", "final")
    agree(8, "checkpoint-8")
    agree("best", min(run.glob("checkpoint-*"), key=ddl_torch.validation_loss).name)
    # Earlier versions did not record the step of the final model: a complete log makes it the newest.
    tensors, metadata = ddl_torch.read_safetensors(run / "model.safetensors")
    ddl_torch.write_safetensors(run / "model.safetensors", tensors, {k: v for k, v in metadata.items() if k != "ddl_step"})
    (run / "checksums.json").unlink()
    agree("last", "final")
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(line for line in lines if not line.startswith('{"step":12,')))
    agree("last", "checkpoint-12")
    # An interrupted run, and a corrupted checkpoint.
    (run / "config.json").unlink()
    weights = bytearray((run / "checkpoint-12/model.safetensors").read_bytes())
    weights[-1] ^= 1
    (run / "checkpoint-12/model.safetensors").write_bytes(weights)
    agree("last", "checkpoint-10")
    refused("12", "checkpoint-12/model.safetensors: corrupted")
    refused("final", "expected a final model, found checkpoint-2, ")


TESTS = [golden_models_agree, exports_round_like_torch, safetensors_library_reads_exports,
         pretrained_models_load_and_save,
         every_parameter_of_a_new_model_learns,
         streams_and_sums_start_as_additions, saved_models_load_again, initial_values_agree_with_ddl, hooks_watch_and_replace_values, ddl_verifies_models_stored_by_torch, ddl_verifies_controls, files_of_torch_load, invalid_folders_are_rejected,
         invalid_configurations_are_rejected, switches_of_the_release, rotated_dimensions_agree_with_ddl, saved_models_replace_those_of_ddl,
         run_and_checkpoint_load,
         models_of_a_run_are_chosen]


def main():
    torch.set_num_threads(1)
    failed = 0
    for test in TESTS:
        try:
            note = test()
            print(f"[  SKIPPED ] {test.__name__}: {note}" if note else f"[       OK ] {test.__name__}", flush=True)
        except Exception as problem:
            failed += 1
            print(f"{type(problem).__name__}: {problem}\n[  FAILED  ] {test.__name__}", flush=True)
    if failed:
        print(f" {failed} FAILED TEST(S)")
    sys.exit(1 if failed else 0)


main()
