"""lm-evaluation-harness through its local-completions model: the scores of ddl eval, for 100 documents of three tasks."""
import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("lm_eval")
pytest.importorskip("datasets")

from conftest import SOURCE, ddl  # noqa: E402

OFFLINE = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
TASK = (SOURCE / "tests/python/harness_task.yaml").read_text()


def rows(path):
    return [json.loads(line) for line in (SOURCE / "data/tasks" / path).read_text().splitlines()[:100]]


def piqa():
    for number, row in enumerate(rows("piqa/valid.jsonl")):
        yield f"Question: {row['goal']}\nAnswer:", [row["sol1"], row["sol2"]], number % 2


def arc():
    for row in rows("arc/ARC-Easy-Test.jsonl"):
        choices = row["question"]["choices"]
        gold = [choice["label"] for choice in choices].index(row["answerKey"])
        yield f"Question: {row['question']['stem']}\nAnswer:", [choice["text"] for choice in choices], gold


def hellaswag():
    for row in rows("hellaswag/hellaswag_val_1000.jsonl"):
        yield row["ctx"], row["endings"], int(row["label"])


TASKS = {"own_piqa": piqa, "own_arc": arc, "own_hellaswag": hellaswag}


def test_scores_are_those_of_ddl_eval(run, server, tmp_path):
    for name, documents in TASKS.items():
        lines = [json.dumps({"context": context, "choices": choices, "gold": gold}) for context, choices, gold in documents()]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        (tmp_path / f"{name}.yaml").write_text(TASK.format(name=name, path=tmp_path / f"{name}.jsonl"))
    files = ",".join(str(tmp_path / f"{name}.jsonl") for name in TASKS)
    said = json.loads(ddl("eval", run, "--tasks", files, "--items", tmp_path / "items", "--json"))
    items = {}
    for line in (tmp_path / "items").read_text().splitlines():
        item = json.loads(line)
        items[item["task"], item["document"]] = [request["loglikelihood"] for request in item["requests"]]
    command = [sys.executable, "-m", "lm_eval", "run", "--model", "local-completions", "--model_args",
               f"model=run,base_url={server}/v1/completions,tokenizer_backend=remote,num_concurrent=8,max_length=512",
               "--tasks", ",".join(TASKS), "--include_path", tmp_path, "--output_path", tmp_path / "out", "--log_samples"]
    done = subprocess.run(command, capture_output=True, text=True, env={**OFFLINE, "HF_HOME": str(tmp_path / "hf")})
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads(next((tmp_path / "out").rglob("results_*.json")).read_text())["results"]
    for name in TASKS:
        own = said["models"][0]["tasks"][name]
        assert {key: results[name][f"{key},none"] for key in ("acc", "acc_norm")} == pytest.approx(
            {key: own[key] for key in ("acc", "acc_norm")}, abs=1e-9)
        samples = next((tmp_path / "out").rglob(f"samples_{name}_*.jsonl")).read_text().splitlines()
        assert len(samples) == 100
        for sample in map(json.loads, samples):
            found = [float(answer[0][0]) for answer in sample["resps"]]
            assert found == pytest.approx(items[name, sample["doc_id"]], abs=1e-4)
