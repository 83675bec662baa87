"""Clients of a server with OpenAI's completions, all at once, in one process:

  python3 serve_load.py http://127.0.0.1:8080 [--clients 8] [--requests 64 | --seconds 600] [--tokens 64] [--words 60]
      [--shared] [--leave 0.1] [--check] [--prompts N] [--from N] [--pid PID] [--fields '{"temperature": 0}']

Each client sends one request after the other: a stream of --tokens tokens that continues --words random words (--shared: most
of them are the same in all prompts). --leave: this share of the requests is ended by the client after some events. --check:
equal prompts (there are --prompts of them) must have equal texts. --from: number of the first prompt. --pid: resident memory of
this process, after a tenth of the requests and at the end. Prints one line of JSON: requests, failures, tokens per second, time
to the first token and between tokens (milliseconds: median and 99th percentile). The exit status is 1 after a failure. Needs
nothing but Python.
"""
import argparse
import asyncio
import json
import random
import sys
import time
from urllib.parse import urlsplit

WORDS = "the king my lord of and to in that is not with be his your for this as have it thou me what so will do no but".split()


def prompt_of(number: int, words: int, shared: bool) -> str:
    common, own = random.Random(-1), random.Random(number)
    first = words * 3 // 4 if shared else 0
    return " ".join([common.choice(WORDS) for _ in range(first)] + [own.choice(WORDS) for _ in range(words - first)])


def resident(pid: int) -> float:
    """Megabytes."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))


class Load:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.url = urlsplit(options.server)
        self.sent = self.done = self.left = self.tokens = 0
        self.first, self.between, self.failures = [], [], []
        self.texts: dict[str, str] = {}
        self.memory: list[float] = []
        self.end = time.monotonic() + options.seconds if options.seconds else None

    def more(self) -> bool:
        return time.monotonic() < self.end if self.end else self.sent < self.options.requests

    async def events(self, reader: asyncio.StreamReader):
        """The events of a chunked answer, with the time at which each arrived."""
        rest = b""
        while True:
            size = int((await reader.readline()).split(b";")[0], 16)
            data = await reader.readexactly(size + 2)
            rest += data[:-2]
            *whole, rest = rest.split(b"\n\n")
            now = time.monotonic()
            for event in whole:
                if event.startswith(b"data: "):
                    yield now, event[6:]
            if size == 0:
                return

    async def request(self, number: int) -> None:
        o, rng = self.options, random.Random(number)
        prompt = prompt_of(o.first + number % o.prompts, o.words, o.shared)
        fields = {"prompt": prompt, "max_tokens": o.tokens, "stream": True, **json.loads(o.fields)}
        body = json.dumps(fields).encode()
        leave = rng.randrange(1, o.tokens) if rng.random() < o.leave else None
        reader, writer = await asyncio.open_connection(self.url.hostname, self.url.port)
        try:
            start = last = time.monotonic()
            writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                         b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            if " 200 " not in head.splitlines()[0]:
                raise ValueError(head.splitlines()[0])
            text, n, complete = "", 0, False
            async for now, data in self.events(reader):
                if data == b"[DONE]":
                    complete = True
                    continue
                event = json.loads(data)
                if "error" in event:
                    raise ValueError(event["error"])
                if not event["choices"] or not event["choices"][0].get("text"):
                    continue
                (self.between if n else self.first).append(now - (last if n else start))
                last, n, text = now, n + 1, text + event["choices"][0]["text"]
                if n == leave:
                    self.left += 1
                    return
            self.tokens += o.tokens
            if not complete:
                raise ValueError("the stream has no end")
            if o.check and self.texts.setdefault(prompt, text) != text:
                raise ValueError(f"two texts of one prompt: {self.texts[prompt]!r} and {text!r}")
            self.done += 1
        finally:
            writer.close()

    async def client(self) -> None:
        while self.more():
            number, self.sent = self.sent, self.sent + 1
            if self.options.pid and self.sent == self.options.requests // 10:
                self.memory.append(resident(self.options.pid))
            try:
                await self.request(number)
            except (OSError, ValueError, asyncio.IncompleteReadError, KeyError) as error:
                self.failures.append(f"{type(error).__name__}: {error}")

    async def run(self) -> dict:
        start = time.monotonic()
        await asyncio.gather(*(self.client() for _ in range(self.options.clients)))
        seconds = time.monotonic() - start
        if self.options.pid:
            self.memory.append(resident(self.options.pid))

        def percentiles(values: list[float]) -> list[float]:
            values = sorted(values) or [0]
            return [round(1e3 * values[min(len(values) - 1, int(q * len(values)))], 2) for q in (0.5, 0.99)]

        return {"clients": self.options.clients, "requests": self.sent, "complete": self.done, "left": self.left,
                "failures": len(self.failures), "seconds": round(seconds, 1), "tokens_per_s": round(self.tokens / seconds, 1),
                "first_ms": percentiles(self.first), "between_ms": percentiles(self.between),
                "resident_mb": [round(value, 1) for value in self.memory]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--words", type=int, default=60)
    parser.add_argument("--shared", action="store_true")
    parser.add_argument("--leave", type=float, default=0)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--prompts", type=int, default=1 << 30)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--pid", type=int, default=0)
    parser.add_argument("--fields", default='{"temperature": 0, "ignore_end": true}')
    load = Load(parser.parse_args())
    print(json.dumps(asyncio.run(load.run())))
    for failure in sorted(set(load.failures))[:10]:
        print(f"failure: {failure}", file=sys.stderr)
    sys.exit(1 if load.failures else 0)


if __name__ == "__main__":
    main()
