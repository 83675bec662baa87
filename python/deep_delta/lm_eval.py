"""Models of ddl in lm-evaluation-harness, by the C library. Importing this module registers the model `deep_delta`:

    python -m deep_delta.lm_eval run --model deep_delta --model_args path=RUN --tasks TASKS

is the command `lm_eval` with that model; the harness has no way of its own to find models of other packages.
"""
from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from deep_delta.engine import Engine

Request = tuple[Any, list[int], list[int]]  # texts, tokens of the context and of the continuation


@register_model("deep_delta")
class DeepDeltaLM(TemplateLM):  # type: ignore[misc]
    """A model folder or run.

    path, which, dtype, threads, tokenizer: as of Engine. batch_size: sequences per pass. max_gen_toks: tokens of
    generations that do not say it.
    """

    def __init__(self, path: str, which: str = "last", dtype: str = "f32", threads: int = 0, tokenizer: str | None = None,
                 batch_size: int | str | None = 8, max_gen_toks: int = 256, **rest: Any) -> None:
        super().__init__()
        unknown = set(rest) - {"device", "max_batch_size"}  # what the harness gives to every model
        if unknown:
            raise TypeError(f"model_args: unknown key {', '.join(sorted(unknown))}")
        self.engine = Engine(path, which=which, dtype=dtype, threads=int(threads), tokenizer=tokenizer)
        self.batch = 8 if batch_size in (None, "auto") else int(str(batch_size))
        self.max_gen_toks = int(max_gen_toks)

    @property
    def eot_token_id(self) -> int:
        """The end-of-text token."""
        return self.engine.encode("<|endoftext|>", special=True)[0]

    @property
    def tokenizer_name(self) -> str:
        """For the harness's cache of requests."""
        return str(self.engine.path)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        """The token ids of a text."""
        return self.engine.encode(string)

    def _loglikelihood_tokens(self, requests: list[Request], disable_tqdm: bool = False,
                              **kwargs: Any) -> list[tuple[float, bool]]:
        """Log-likelihood of each continuation, and whether greedy decoding gives it. Contexts are cut from the left to the
        model's context; a continuation that does not fit is an error. Requests of similar lengths share a pass; equal ones
        are computed once.
        """
        longest = max((len(continuation) for _, _, continuation in requests), default=0)
        if longest > self.engine.context:
            raise ValueError(f"continuation too long: expected at most {self.engine.context} tokens, the model's context, "
                             f"found {longest}")
        rows = [(tuple((context + continuation)[-(self.engine.context + 1):]), len(continuation))
                for _, context, continuation in requests]
        found: dict[tuple[tuple[int, ...], int], tuple[float, bool]] = {}
        distinct = sorted(set(rows), key=lambda row: (len(row[0]), row))
        for at in range(0, len(distinct), self.batch):
            part = distinct[at:at + self.batch]
            width = max(len(ids) for ids, _ in part) - 1
            tokens, targets = np.zeros((len(part), width), np.int32), np.full((len(part), width), -1, np.int32)
            for i, (ids, n) in enumerate(part):
                tokens[i, :len(ids) - 1] = ids[:-1]
                targets[i, max(len(ids) - 1 - n, 0):len(ids) - 1] = ids[max(len(ids) - n, 1):]
            scores = self.engine.scores(tokens, targets)
            for i, row in enumerate(part):
                counted = targets[i] >= 0
                found[row] = (-float(scores.losses[i, counted].sum(dtype=np.float64)), bool((scores.ranks[i, counted] == 0).all()))
        answers = [found[row] for row in rows]
        for (texts, _, _), answer in zip(requests, answers):
            if texts is not None:
                self.cache_hook.add_partial("loglikelihood", texts, answer)
        return answers

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        """Log-likelihood of each text after the end-of-text token, in windows of the context."""
        sums = []
        for request in requests:
            windows = get_rolling_token_windows(self.tok_encode(request.args[0]), self.eot_token_id, self.engine.context, 1)
            scored = self._loglikelihood_tokens([(None, *make_disjoint_window(window)) for window in windows])
            sums.append(sum(score for score, _ in scored))
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, sums[-1])
        return sums

    def _cut(self, text: str, n: int) -> str:
        """The end of a text that has at most n tokens, from a whole character on."""
        ids, keep = self.engine.encode(text), n
        while len(ids) > n:
            ids, keep = ids[-keep:], keep - 1
            while (text := self.engine.decode(ids)).startswith("\ufffd"):
                ids = ids[1:]
            ids = self.engine.encode(text)  # a word that was cut may have more tokens than its part had
        return text

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """Text after each context, up to one of the texts of `until`. Contexts are cut from the left; repeats differ."""
        texts = []
        repeated: Counter[str] = Counter()
        for request in requests:
            context, options = request.args
            seed = repeated[key := repr(request.args)]
            repeated[key] += 1
            until = options.get("until") or []
            n = int(options.get("max_gen_toks", self.max_gen_toks))
            if n >= self.engine.context:
                raise ValueError(f"max_gen_toks: expected less than the model's context of {self.engine.context}, found {n}")
            prompt = self._cut(context, self.engine.context - n)
            sampled = bool(options.get("do_sample"))
            texts.append(self.engine.generate(
                prompt, max_tokens=n, temperature=float(options.get("temperature", 1)) if sampled else 0.0,
                top_p=float(options.get("top_p", 1)), top_k=int(options.get("top_k", 0)), seed=seed,
                stop=[until] if isinstance(until, str) else until))
            self.cache_hook.add_partial("generate_until", request.args, texts[-1])
        return texts


def main() -> None:
    """The command lm_eval."""
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


if __name__ == "__main__":
    main()
