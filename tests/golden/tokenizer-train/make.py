"""Made the vectors of this folder with Hugging Face's `tokenizers`; kept to show how. The tests need no Python.

Each case: BpeTrainer on one whole text (ByteLevel, add_prefix_space false, the byte-level alphabet), its tokenizer.json
as `tokenizers` writes it, and the ids that it gives to the probes. shakespeare.txt is the beginning of tinyshakespeare
(public domain); mixed.txt and runs.txt are made here.
"""
import json
import random

import tokenizers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

random.seed(3)
pieces = ["naïve", "café", "Привет", " мир", "你好", "，世界", " 12", "٣٤", "²", "'s", "'ll", "\n", "\n\n", "  ", "\t", " the",
          "\u00a0", "😀", "👍🏽", "ש", "한국어", "e\u0301", " <|endoftext|>", "-", "...", " ", "don't", "\u3000", "Ⅷ"]
runs = ["a", "=", "-", "0", " ", "\n", "ab", "b"]
texts = {
    "mixed.txt": "".join(random.choice(pieces) for _ in range(3000)),
    "runs.txt": "".join(random.choice(runs) * random.choice([1, 1, 2, 3, 5, 8]) for _ in range(3000)),
}
for name, text in texts.items():
    open(name, "w", encoding="utf-8", newline="").write(text)
probes = ["", "First Citizen: Before we proceed any further, hear me speak.", "aaaaaaaaaaaaa ==== 0000 ---- bab",
          "naïve 你好 👍🏽 <|endoftext|> the pad <pad>", "  \n\n\t x", "Don't you'll 12 ٣٤"]
cases = [("shakespeare.txt", 256, 0, []), ("shakespeare.txt", 700, 2, ["<|endoftext|>"]),
         ("shakespeare.txt", 100000, 40, ["<|endoftext|>"]), ("mixed.txt", 500, 2, ["<|endoftext|>", "<pad>", "the", "a"]),
         ("runs.txt", 600, 0, ["<|endoftext|>"])]
rows = []
for number, (name, vocab_size, min_frequency, special) in enumerate(cases):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator([open(name, encoding="utf-8", newline="").read()], trainers.BpeTrainer(
        vocab_size=vocab_size, min_frequency=min_frequency, special_tokens=special, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    file = f"case{number}.json"
    open(file, "w", encoding="utf-8").write(t.to_str())
    rows.append({"text": name, "vocab_size": vocab_size, "min_frequency": min_frequency, "special_tokens": ",".join(special),
                 "tokenizer": file, "made_with": "tokenizers " + tokenizers.__version__,
                 "encodings": [{"text": p, "ids": t.encode(p).ids} for p in probes]})
open("cases.json", "w").write("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")
