"""lm-evaluation-harness as a peer for task evaluation:

  python lm_eval_peer.py make DIR --model baseline                       writes a model folder of size mini with random weights
  python lm_eval_peer.py run DIR --data data/tasks --tasks arc_easy,piqa --shots 0 --limit 200 --batch 16

  python lm_eval_peer.py compare RESULT.json --items ITEMS.jsonl        compares the scores of `run` and of ddl eval --items

`run` evaluates the folder with the harness's own tasks, requests and metrics. The model is python/ddl_torch.py (float32) behind
the harness's interface, with the batching of its own HFLM: requests sorted by length, padded, requests that differ in their last
token only computed once. Tasks read the original files below --data, converted to the columns of the hub's data sets. Prints one
JSON line: documents, seconds of the harness's loglikelihood() (tokenizing and the model; nothing else counts), and for each task
acc, acc_norm and the log-likelihoods of the requests. Needs: pip install torch lm_eval tokenizers
"""
from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
import ddl_torch  # noqa: E402

MINI = dict(num_hidden_layers=6, num_attention_heads=6, head_dim=64, hidden_size=384, block_size=512)
MODELS = {
    "baseline": dict(),
    "ddl-1": dict(ddl_residual="delta"),
    "ddl-cc-ec": dict(ddl_residual="delta", ddl_value_channels=4, ddl_compress="channel", ddl_embed="conv"),
}


def make(folder: Path, name: str) -> None:
    torch.manual_seed(1)
    ddl_torch.save(ddl_torch.Model(ddl_torch.Config(**MINI, **MODELS[name])), folder)
    for file in ("encoder.json", "vocab.bpe"):
        shutil.copy(ROOT / "data/tokenizer" / file, folder / file)


# ---- data: the original files with the columns of the hub's data sets


def records(path: Path) -> list[dict]:
    """The records of a file of JSON lines, or of one list."""
    text = path.read_text()
    return json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.split("\n") if line]


def arc(row: dict, label: str | None) -> dict:
    choices = row["question"]["choices"]
    return {"question": row["question"]["stem"], "answerKey": row["answerKey"],
            "choices": {"text": [c["text"] for c in choices], "label": [c["label"] for c in choices]}}


def openbookqa(row: dict, label: str | None) -> dict:
    converted = arc(row, label)
    return {"question_stem": converted.pop("question")} | converted


def labeled(row: dict, label: str | None) -> dict:
    return row | {"label": int(label)}


def unchanged(row: dict, label: str | None) -> dict:
    return row


# file of the documents, of the examples, split of the documents, conversion
FILES = {
    "arc_easy": ("arc/ARC-Easy-Test.jsonl", "arc/ARC-Easy-Train.jsonl", "test", arc),
    "arc_challenge": ("arc/ARC-Challenge-Test.jsonl", "arc/ARC-Challenge-Train.jsonl", "test", arc),
    "hellaswag": ("hellaswag/hellaswag_val_1000.jsonl", "hellaswag/hellaswag_train_small.jsonl", "validation", unchanged),
    "openbookqa": ("openbookqa/test.jsonl", "openbookqa/train.jsonl", "test", openbookqa),
    "piqa": ("piqa/valid.jsonl", "piqa/train.jsonl", "validation", labeled),
    "sciq": ("sciq/test.json", "sciq/valid.json", "test", unchanged),
    "social_iqa": ("social_iqa/dev.jsonl", "social_iqa/train.jsonl", "validation", labeled),
    "winogrande": ("winogrande/dev.jsonl", "winogrande/train_m.jsonl", "validation", unchanged),
}


def convert(data: Path, name: str, out: Path) -> None:
    rows, labels = records(data / name), (data / name).with_name(Path(name).stem + "-labels.lst")
    answers = labels.read_text().split() if labels.exists() else [None] * len(rows)
    conversion = next(f[3] for f in FILES.values() if name in f)
    with open(out, "w") as file:
        for row, answer in zip(rows, answers):
            file.write(json.dumps(conversion(row, answer)) + "\n")


# ---- the model behind the harness's interface


def harness_model(folder: Path, batch: int):
    from lm_eval.api.model import TemplateLM
    from lm_eval.models.utils import Collator
    from tokenizers import ByteLevelBPETokenizer

    class Model(TemplateLM):
        def __init__(self) -> None:
            super().__init__()
            self.model = ddl_torch.load(folder).eval()
            self.max_length = self.model.config.block_size
            self.encoder = ByteLevelBPETokenizer(str(folder / "encoder.json"), str(folder / "vocab.bpe"))
            self.seconds, self.scores = 0.0, {}

        @property
        def eot_token_id(self) -> int:
            return self.encoder.token_to_id("<|endoftext|>")

        def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs) -> list[int]:
            return self.encoder.encode(string).ids

        def loglikelihood(self, requests, disable_tqdm: bool = True):
            start = time.perf_counter()
            scores = super().loglikelihood(requests, disable_tqdm=True)
            self.seconds += time.perf_counter() - start
            for request, score in zip(requests, scores):
                self.scores.setdefault(request.task_name, []).append((request.doc_id, request.idx, score[0]))
            return scores

        @torch.inference_mode()
        def _loglikelihood_tokens(self, requests, **kwargs):
            order = Collator(requests, sort_fn=lambda r: (-len(r[1] + r[2]), tuple(r[1] + r[2])), group_by="contexts",
                             group_fn=lambda r: r[-2] + r[-1][:-1])
            scores = []
            for chunk in order.get_batched(n=batch):
                inputs = [torch.tensor((context + continuation)[-(self.max_length + 1):][:-1])
                          for _, context, continuation in chunk]
                log_p = torch.log_softmax(self.model(pad_sequence(inputs, batch_first=True)), -1)
                for (key, context, continuation), row, x in zip(chunk, log_p, inputs):
                    row = row[len(x) - len(continuation): len(x)].unsqueeze(0)
                    greedy = row.argmax(-1)
                    for key, tokens, row in order.get_cache(req_str=key, cxt_toks=context, cont_toks=continuation, logits=row):
                        tokens = torch.tensor(tokens).unsqueeze(0)
                        score = (float(row.gather(2, tokens.unsqueeze(-1)).sum()), bool((greedy == tokens).all()))
                        scores.append(score)
            return order.get_original(scores)

        def loglikelihood_rolling(self, requests, disable_tqdm: bool = False):
            raise NotImplementedError

        def generate_until(self, requests, disable_tqdm: bool = False):
            raise NotImplementedError

    return Model()


def run(folder: Path, data: Path, names: list[str], shots: int, limit: int | None, batch: int) -> dict:
    os.environ["HF_DATASETS_OFFLINE"] = "1"
    import lm_eval
    import lm_eval.tasks

    model, manager = harness_model(folder, batch), lm_eval.tasks.TaskManager()
    with tempfile.TemporaryDirectory() as work:
        tasks = []
        for name in names:
            documents, examples, split, _ = FILES[name]
            files = {split: str(Path(work) / f"{name}.jsonl"), "train": str(Path(work) / f"{name}-examples.jsonl")}
            convert(data, documents, Path(files[split]))
            convert(data, examples, Path(files["train"]))
            # the harness's own task with other files; JSON is YAML
            own = {"include": str(manager.task_index[name].yaml_path), "dataset_path": "json", "dataset_name": None,
                   "validation_split": None, f"{split}_split": split, "dataset_kwargs": {"data_files": files, "cache_dir": work}}
            tasks.append(str(Path(work) / f"{name}.yaml"))
            Path(tasks[-1]).write_text(json.dumps(own))
        found = lm_eval.simple_evaluate(model=model, tasks=tasks, num_fewshot=shots, limit=limit, bootstrap_iters=0,
                                        verbosity="ERROR")
    values = {}
    for name in names:
        result = found["results"][name]
        values[name] = {key.split(",")[0]: value for key, value in result.items() if key in ("acc,none", "acc_norm,none")}
        values[name]["loglikelihoods"] = [score for _, _, score in sorted(model.scores[name])]
    n = sum(found["n-samples"][name]["effective"] for name in names)
    return {"documents": n, "seconds": model.seconds, "documents_per_s": n / model.seconds, "tasks": values}


# ---- scores side by side


def compare(harness: dict, items: Path) -> str:
    """The largest difference of a log-likelihood, and whether the accuracies are equal."""
    found: dict[str, dict[int, dict]] = {}
    for line in records(items):
        found.setdefault(line["task"], {})[line["document"]] = line
    largest, equal = 0.0, True
    for name, values in harness["tasks"].items():
        documents = [found[name][i] for i in sorted(found[name])]
        ours = [request["loglikelihood"] for document in documents for request in document["requests"]]
        assert len(ours) == len(values["loglikelihoods"]), name
        largest = max([largest] + [abs(a - b) for a, b in zip(ours, values["loglikelihoods"])])
        for key, choice in (("acc", "choice"), ("acc_norm", "choice_norm")):
            share = sum(document[choice] == document["gold"] for document in documents) / len(documents)
            equal = equal and abs(values.get(key, share) - share) < 1e-9
    return f"accuracies {'equal' if equal else 'DIFFER'}, log-likelihoods within {largest:.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("make", "run", "compare"))
    parser.add_argument("folder", type=Path, help="model folder; compare: the output of run")
    parser.add_argument("--items", type=Path, help="compare: the file of ddl eval --items")
    parser.add_argument("--model", choices=MODELS, default="baseline")
    parser.add_argument("--data", type=Path, default=ROOT / "data/tasks")
    parser.add_argument("--tasks", default="arc_easy,piqa")
    parser.add_argument("--shots", type=int, default=0)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--batch", type=int, default=16)
    args = parser.parse_args()
    if args.verb == "make":
        make(args.folder, args.model)
    elif args.verb == "compare":
        print(compare(json.loads(args.folder.read_text()), args.items))
    else:
        print(json.dumps(run(args.folder, args.data, args.tasks.split(","), args.shots, args.limit, args.batch)))


if __name__ == "__main__":
    main()
