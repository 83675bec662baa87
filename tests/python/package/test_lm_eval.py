"""deep_delta.lm_eval: the scores of ddl eval in lm-evaluation-harness, on a task of its own, without a network."""
import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("lm_eval")
pytest.importorskip("datasets")

import deep_delta as dd  # noqa: E402
from conftest import SOURCE  # noqa: E402

OFFLINE = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
TASK = (SOURCE / "tests/python/harness_task.yaml").read_text()


def test_scores_are_those_of_ddl_eval(run, tmp_path):
    """The command line of the harness; log-likelihoods of every choice, acc and acc_norm."""
    rows = [json.loads(line) for line in (SOURCE / "data/tasks/piqa/valid.jsonl").read_text().splitlines()[:16]]
    documents = [{"context": f"Question: {row['goal']}\nAnswer:", "choices": [row["sol1"], row["sol2"]], "gold": i % 2}
                 for i, row in enumerate(rows)]
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    said = dd.cli.run("eval", run, tasks=path, items=tmp_path / "items")
    items = [json.loads(line) for line in (tmp_path / "items").read_text().splitlines()]
    items.sort(key=lambda item: item["document"])
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/own.yaml").write_text(TASK.format(name="own", path=path))
    command = [sys.executable, "-m", "deep_delta.lm_eval", "run", "--model", "deep_delta", "--model_args", f"path={run}",
               "--tasks", "own", "--include_path", tmp_path / "tasks", "--output_path", tmp_path / "out", "--log_samples"]
    done = subprocess.run(command, capture_output=True, text=True, env={**OFFLINE, "HF_HOME": str(tmp_path / "hf")})
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(next((tmp_path / "out").rglob("results_*.json")).read_text())["results"]["own"]
    samples = [json.loads(line) for line in next((tmp_path / "out").rglob("samples_own_*.jsonl")).read_text().splitlines()]
    samples.sort(key=lambda sample: sample["doc_id"])
    found = [[float(answer[0][0]) for answer in sample["resps"]] for sample in samples]
    expected = [[request["loglikelihood"] for request in item["requests"]] for item in items]
    assert found == [pytest.approx(row, abs=1e-3) for row in expected]
    values = said["models"][0]["tasks"]["own"]
    assert {name: result[f"{name},none"] for name in ("acc", "acc_norm")} == pytest.approx(
        {name: values[name] for name in ("acc", "acc_norm")}, abs=1e-9)


def test_texts_and_rolling_windows(run):
    """Generation is the engine's; a text longer than the context is scored once for each token."""
    from deep_delta.lm_eval import DeepDeltaLM
    from lm_eval.api.instance import Instance

    model, engine = DeepDeltaLM(str(run)), dd.Engine(run)
    requests = [Instance("generate_until", {}, ("The king", {"until": ["\n"], "max_gen_toks": 12}), 0)]
    assert model.generate_until(requests) == [engine.generate("The king", max_tokens=12, temperature=0, stop=["\n"])]
    # The same request again is another sample.
    sampled = Instance("generate_until", {}, ("The king", {"until": "\n", "max_gen_toks": 12, "do_sample": True}), 0)
    assert model.generate_until([sampled] * 2) == [
        engine.generate("The king", max_tokens=12, stop="\n", seed=seed) for seed in (0, 1)]
    ids = engine.encode((SOURCE / "data/text/tinyshakespeare.txt").read_text()[:6 * engine.context])[:engine.context + 9]
    text = engine.decode(ids)
    assert engine.encode(text) == ids
    head = engine.scores([model.eot_token_id, *ids[:engine.context - 1]], ids[:engine.context]).losses.sum()
    tail = engine.scores(ids[-engine.context - 1:-1], [-1] * (engine.context - 9) + ids[-9:]).losses.sum()
    found = model.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, (text,), 0)])
    assert found == [pytest.approx(-float(head + tail), rel=1e-4)]
    with pytest.raises(TypeError, match="model_args: unknown key pth"):
        DeepDeltaLM(str(run), pth="a")
