"""deep_delta.Engine: the numbers and texts of the program, errors, lifetimes, threads."""
import contextlib
import gc
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import deep_delta as dd
from conftest import SOURCE, TOKENIZER
from deep_delta import engine as module
from deep_delta.paths import library, program

TEXT = "First Citizen:\nBefore we proceed any further, hear me speak."


@pytest.fixture(scope="module")
def engine(run):
    return dd.Engine(run)


def test_structs_are_those_of_the_headers(tmp_path):
    """Sizes and offsets by a C program."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    lines, expected = [], []
    for name, struct in {**module.STRUCTS, "ddl_config": module.ConfigStart}.items():
        for field, *_ in struct._fields_:
            lines.append(f'printf("%zu\\n", offsetof(struct {name}, {field}));')
            expected.append(getattr(struct, field).offset)
        if name != "ddl_config":
            lines.append(f'printf("%zu\\n", sizeof(struct {name}));')
            expected.append(module.c.sizeof(struct))
    headers = sorted(path.name for path in (SOURCE / "include/ddl").glob("*.h"))
    source = "".join(f'#include "ddl/{name}"\n' for name in headers if name != "delta_args.h") + "#include <stdio.h>\n"
    (tmp_path / "sizes.c").write_text(source + "int main(void) {" + "\n".join(lines) + "}")
    subprocess.run(["cc", "-I", SOURCE / "include", tmp_path / "sizes.c", "-o", tmp_path / "sizes"], check=True)
    found = subprocess.run([tmp_path / "sizes"], capture_output=True, text=True, check=True).stdout.split()
    assert [int(number) for number in found] == expected


def test_precisions_are_those_of_the_library():
    array = (module.c.c_char_p * 5).in_dll(module.open_library(), "ddl_precision_names")
    assert [name.decode() for name in array[:4]] == list(module.PRECISIONS) and array[4] is None


def test_tokens(engine):
    ids = engine.encode(TEXT)
    assert engine.decode(ids) == TEXT and len(ids) > 10
    assert engine.encode("<|endoftext|>", special=True) == [50256]
    with pytest.raises(ValueError, match="99999"):
        engine.decode([99999])
    assert engine.decode([]) == ""
    for wrong, message in (([1.9], "expected integers, found float64"), ([True], "found bool"),
                           ([2**32 + 7], "expected integers of 32 bits, found 4294967303")):
        with pytest.raises(ValueError, match=message):
            engine.decode(wrong)


def test_losses_are_those_of_the_logits(engine):
    ids = engine.encode(TEXT)
    scores = engine.scores(ids)
    logits = engine.logits(ids).astype(np.float64)
    logp = logits - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True)) - logits.max(-1, keepdims=True)
    expected = -logp[np.arange(len(ids) - 1), ids[1:]]
    np.testing.assert_allclose(scores.losses[0, :-1], expected, rtol=1e-5)
    assert scores.losses[0, -1] == 0 and scores.ranks[0, -1] == -1
    assert scores.loss == pytest.approx(expected.mean(), rel=1e-6)
    np.testing.assert_array_equal(scores.ranks[0, :-1], (logits[:-1] > logits[np.arange(len(ids) - 1), ids[1:]][:, None]).sum(-1))


def test_scores_are_those_of_the_program(engine, run):
    """A text after an end-of-text token, as ddl logprobs reads it."""
    said = subprocess.run([program(), "logprobs", run, "--json"], input=TEXT, check=True, capture_output=True, text=True)
    rows = [json.loads(line) for line in said.stdout.splitlines()]
    scores = engine.scores([50256, *engine.encode(TEXT)])
    np.testing.assert_allclose(-scores.losses[0, :-1], [row["logprob"] for row in rows], atol=2e-6)
    np.testing.assert_array_equal(scores.ranks[0, :-1], [row["rank"] for row in rows])
    np.testing.assert_allclose(scores.entropies[0, :-1], [row["entropy"] for row in rows], atol=2e-6)


def test_batches(engine):
    ids = np.array([engine.encode(TEXT)[:8], engine.encode(TEXT)[3:11]])
    both = engine.logits(ids, rows=2)
    assert both.shape == (2, 2, engine.vocab_size)
    np.testing.assert_allclose(both[1], engine.logits(ids[1])[-2:], atol=1e-5)
    with pytest.raises(ValueError):
        engine.logits(ids, rows=9)
    with pytest.raises(dd.DdlError, match="vocabulary"):
        engine.logits([engine.vocab_size])


def test_sessions(engine):
    ids = engine.encode(TEXT)
    full = engine.logits(ids)
    session = engine.session(slots=3, tokens=64)
    np.testing.assert_allclose(session.prefill(ids[:5]), full[4:5], atol=1e-5)
    session.fork(0, 2)
    np.testing.assert_allclose(session.step([ids[5]], slots=[2]), full[5:6], atol=1e-5)
    assert (session.length(0), session.length(1), session.length(2)) == (5, 0, 6)
    session.reset(2)
    assert session.length(2) == 0
    with pytest.raises(dd.DdlError):
        session.step([1], slots=[7])


@pytest.mark.parametrize("options", [dict(temperature=0), dict(seed=7, top_k=20), dict(seed=3, temperature=0.7, top_p=0.9)])
def test_text_is_that_of_the_program(engine, run, options):
    flags = dd.cli.arguments(dict(options, max_tokens=20, prompt="The king"))
    said = subprocess.run([program(), "generate", run, *flags], capture_output=True, text=True, check=True).stdout
    pieces = []
    text = engine.generate("The king", max_tokens=20, on_text=pieces.append, **options)
    assert said.rstrip("\n") == text.rstrip("\n") and "".join(pieces) == text


def test_one_text_to_stop_at(engine):
    whole = engine.generate("The king", max_tokens=40)
    stop = whole[10:13]
    assert engine.generate("The king", max_tokens=40, stop=stop) == engine.generate("The king", max_tokens=40, stop=[stop])
    assert engine.generate("The king", max_tokens=40, stop=stop) == whole[:whole.index(stop)]


def test_an_exception_ends_the_generation(engine):
    def stop(text):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        engine.generate("The", max_tokens=50, on_text=stop)


@contextlib.contextmanager
def raising(number, exception):
    """While it lasts, the signal raises the exception; a shell ignores SIGINT in what it starts in the background."""
    def handle(number, frame):
        raise exception

    before = signal.signal(number, handle)
    try:
        yield
    finally:
        signal.signal(number, before)


def test_interrupts_end_the_generation(engine):
    """Ctrl-C while the library computes, which is when most of the time passes; and in on_text."""
    started = threading.Event()
    thread = threading.Thread(target=lambda: started.wait(60) and os.kill(os.getpid(), signal.SIGINT))
    thread.start()
    with raising(signal.SIGINT, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            for _ in range(50):
                engine.generate("The king", max_tokens=100, ignore_end=True, on_text=lambda text: started.set())
        with pytest.raises(KeyboardInterrupt):
            engine.generate("The king", max_tokens=100, on_text=lambda text: signal.raise_signal(signal.SIGINT))
    thread.join()


def ticks():
    """Processor time of each thread of this process, in ticks of the clock."""
    fields = {int(task.name): (task / "stat").read_text().rpartition(")")[2].split() for task in Path("/proc/self/task").iterdir()}
    return {task: int(values[11]) + int(values[12]) for task, values in fields.items()}


def blocks(task, number):
    """True if a thread of this process blocks the signal."""
    status = Path(f"/proc/self/task/{task}/status").read_text()
    return bool(int(re.search(r"^SigBlk:\s*(\w+)", status, re.M)[1], 16) >> (number - 1) & 1)


def test_threads_that_compute_block_signals(run):
    """Those of OpenMP too: the frame of a handler would overwrite the buffers of oneDNN."""
    engine = dd.Engine(run, threads=2)
    tokens = np.ones((8, 128), np.int32)
    before, computed = ticks(), set()
    for _ in range(200):
        engine.scores(tokens)
        computed = {task for task, spent in ticks().items() if spent - before.get(task, 0) >= 10}
        if len(computed) >= 2:
            break
    assert len(computed) >= 2
    for task in computed:
        assert blocks(task, signal.SIGINT) and blocks(task, signal.SIGALRM)
        assert not blocks(task, signal.SIGSEGV)  # faulthandler


def test_an_engine_can_be_used_after_interrupts(engine):
    expected = engine.generate("The king", max_tokens=5, temperature=0)
    with raising(signal.SIGINT, KeyboardInterrupt):
        for i in range(20):
            timer = threading.Timer(0.002 * i, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                timer.start()
                while True:
                    engine.generate("The king", max_tokens=50, ignore_end=True)
            timer.join()
            assert engine.generate("The king", max_tokens=5, temperature=0) == expected


class Interrupted:
    """The library, with a signal to this process in each pass."""

    def __init__(self, lib, number):
        self.lib, self.number, self.passes = lib, number, 0

    def __getattr__(self, name):
        return getattr(self.lib, name)

    def ddl_model_logits(self, *arguments):
        os.kill(os.getpid(), self.number)
        time.sleep(0.1)  # in which the handler runs
        status = self.lib.ddl_model_logits(*arguments)
        self.passes += 1
        return status


class SlowQueue:
    """A queue whose put is still running when the pass begins."""

    def __init__(self, queue):
        self.queue = queue

    def put(self, call):
        self.queue.put(call)
        time.sleep(0.3)


def test_a_pass_ends_that_began_while_it_was_queued(engine, monkeypatch):
    engine.logits([1, 2, 3])  # there is a worker
    lib, worker = Interrupted(engine.lib, signal.SIGINT), dd.engine.WORKERS.worker
    monkeypatch.setattr(engine, "lib", lib)
    monkeypatch.setattr(worker, "calls", SlowQueue(worker.calls))
    with raising(signal.SIGINT, KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        engine.logits([1, 2, 3])
    assert lib.passes == 1


@pytest.mark.parametrize("number, exception", [(signal.SIGINT, KeyboardInterrupt), (signal.SIGALRM, TimeoutError)])
def test_a_pass_ends_before_the_exception_of_a_handler(engine, monkeypatch, number, exception):
    lib = Interrupted(engine.lib, number)
    monkeypatch.setattr(engine, "lib", lib)
    with raising(number, exception), pytest.raises(exception):
        engine.logits([1, 2, 3])
    assert lib.passes == 1


def test_on_text_may_use_the_engine(engine):
    counts = []
    text = engine.generate("The king", max_tokens=5, on_text=lambda text: counts.append(len(engine.scores([1, 2, 3]).losses)))
    assert counts and set(counts) == {1} and text


def test_a_failed_conversion_is_raised(engine):
    with pytest.raises(module.c.ArgumentError):
        engine._call(lambda error: engine.lib.ddl_session_reset(object(), 0, error))
    assert engine.logits([1]).shape == (1, engine.vocab_size)


def computing_threads():
    return sum(thread.name == "deep_delta" for thread in threading.enumerate())


def test_a_worker_ends_with_its_thread(engine):
    engine.logits([1])
    before, found = computing_threads(), []
    thread = threading.Thread(target=lambda: found.extend([engine.logits([1]), computing_threads()]))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(found[0], engine.logits([1]))
    assert found[1] == before + 1
    for _ in range(100):
        if computing_threads() == before:
            break
        time.sleep(0.1)
    assert computing_threads() == before


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_an_engine_works_after_a_fork(engine):
    expected = engine.logits([1, 2, 3])
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if np.array_equal(engine.logits([1, 2, 3]), expected) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def test_the_interpreter_exits(run):
    """With a call in an exit handler, and an engine that is not freed."""
    code = """import atexit, sys, deep_delta as dd
engine = dd.Engine(sys.argv[1])
atexit.register(lambda: print(engine.logits([1]).shape[0], flush=True))
print(len(engine.logits([1, 2])), flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code, run], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n1\n", "")


def test_library_of_another_version(monkeypatch):
    found = module.open_library().ddl_version().decode()
    major, minor, patch = (int(part) for part in found.split("."))
    monkeypatch.setattr(module, "__version__", f"{major}.{minor}.{patch + 1}")
    module.open_library()
    monkeypatch.setattr(module, "__version__", f"{major}.{minor + 1}.0")
    with pytest.raises(dd.DdlError, match=re.escape(f"expected {major}.{minor + 1}.0, that of the package, found {found}")):
        module.open_library()


@pytest.mark.parametrize("folder", ["lib", "lib64", "lib/x86_64-linux-gnu"])
def test_folders_of_the_library(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("DEEP_DELTA_PREFIX", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no libddl.so"):
        library()
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "libddl.so.0.1").touch()
    assert library() == tmp_path / folder / "libddl.so.0.1"


def test_precision_of_weights(run):
    ids = list(range(100, 116))
    exact = dd.Engine(run).scores(ids).loss
    for dtype in ("bf16", "int8"):
        assert dd.Engine(run, dtype=dtype).scores(ids).loss == pytest.approx(exact, rel=1e-2)
    with pytest.raises(ValueError, match="f16"):
        dd.Engine(run, dtype="f16")
    with pytest.raises(ValueError, match="cache: expected one of auto, f32, bf16, found 'int8'"):
        dd.Engine(run).session(cache="int8")


def test_numbers_are_not_cut_off(engine):
    for options, message in [(dict(stop="a\0b"), "U.0000"), (dict(stop_ids=[1 << 32]), "32 bits"),
                             (dict(logit_bias={1 << 32: 1.0}), "32 bits"), (dict(seed=1 << 64), "seed: expected 0 to"),
                             (dict(max_tokens=-1), "max_tokens: expected 0 to .*, found -1")]:
        with pytest.raises(ValueError, match=message):
            engine.generate("a", **options)
    session = engine.session(2, 8)
    with pytest.raises(ValueError, match="slot: "):
        session.prefill([1], slot=1 << 64)
    with pytest.raises(TypeError):
        session.step([1], slots=[1.5])


def test_errors(tmp_path, run):
    with pytest.raises(dd.DdlError, match=re.escape(str(tmp_path))) as caught:
        dd.Engine(tmp_path / "none")
    assert caught.value.status == "io"
    with pytest.raises(dd.DdlError):
        dd.Engine(run, which="7")


def test_tokenizer_of_a_model_is_verified(tmp_path, run):
    copy = shutil.copytree(run, tmp_path / "copy")
    assert dd.Engine(run, tokenizer=copy).encode(TEXT)
    with open(copy / "tokenizer.json", "a") as file:
        file.write("\n")
    with pytest.raises(dd.DdlError, match="tokenizer.json: corrupted"):
        dd.Engine(run, tokenizer=copy).encode(TEXT)
    assert dd.Engine(run, tokenizer=copy, verify=False).encode(TEXT)


def test_objects_may_be_dropped_in_any_order(run):
    session = dd.Engine(run).session(tokens=16)
    assert session.prefill([1, 2, 3]).shape[0] == 1


class Recorder:
    """The library, with the names of the functions that were called."""

    def __init__(self, lib):
        self.lib, self.called = lib, []

    def __getattr__(self, name):
        self.called.append(name)
        return getattr(self.lib, name)


@pytest.mark.parametrize("backwards", [False, True])
def test_objects_in_a_cycle_are_freed_in_order(run, backwards):
    """The collector finalizes in any order; the library's objects are freed after those that use them."""
    engine = dd.Engine(run)
    handles = [engine._backend, engine._model, engine.session(tokens=16)._session]
    recorder = Recorder(engine.lib)
    for handle in handles:
        handle.lib = recorder
    handles = handles[::-1] if backwards else handles
    handles.append(handles)
    del engine, handle, handles
    gc.collect()
    assert recorder.called == ["ddl_session_free", "ddl_model_free", "ddl_backend_free"]


def test_the_interpreter_runs_during_a_call(engine):
    """Another thread counts while a pass is computed."""
    counts, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counts[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    before = counts[0]
    engine.logits(np.ones((8, 128), np.int32), rows=1)
    during = counts[0] - before
    stop.set()
    thread.join()
    assert during > 2


def seconds_of_program(*arguments):
    """Processor time of the program, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([program(), *arguments], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.skipif(os.environ.get("DDL_TEST_SAMPLE") == "1", reason="a measurement, not in a sample of the tests")
def test_speed_is_that_of_the_program(shards, tmp_path):
    """Tokens per second of generate, with float32 weights of size mini: 0.97 of ddl generate's or more.

    Each measures its processor time on one thread, which does not count the time in which other processes run. What
    comes before the tokens (loading, the prompt) is subtracted: the best time of a text of one token. Other processes
    still take caches and memory bandwidth, so that the two are measured in turns. Two estimates are made, of which one
    has to be fast enough: the ratio of the best times, and the median of the ratios of all turns. Turns are added until
    one is, at most 30.
    """
    folder, tokens = tmp_path / "run", 250
    dd.cli.train(model="ddl-cc-ec", size="mini", train_data=shards, tokenizer=TOKENIZER, out=folder, steps=1, batch=1,
                 seq=16, val_data="none", save_every=0, progress=False)
    engine = dd.Engine(folder, threads=1)
    options = dict(temperature=0, ignore_end=True)

    def measure_engine(n):
        before = time.process_time()
        engine.generate("The king", max_tokens=n, **options)
        return time.process_time() - before

    def measure_program(n):
        flags = dd.cli.arguments(dict(options, prompt="The king", threads=1, verify=False, max_tokens=n))
        return seconds_of_program("generate", folder, *flags)

    engine.generate("The king", max_tokens=1)  # loads the tokenizer
    times = {measure: ([], []) for measure in (measure_engine, measure_program)}
    for turn in range(30):
        for measure in list(times)[::1 if turn % 2 else -1]:
            starts, texts = times[measure]
            if turn < 5:
                starts.append(measure(1))
            texts.append(measure(1 + tokens))
        ours, theirs = (np.array(texts) - min(starts) for starts, texts in times.values())
        best, median = theirs.min() / ours.min(), np.median(theirs / ours)
        if turn >= 2 and max(best, median) >= 0.97:
            break
    print(f"{tokens / ours.min():.1f} and {tokens / theirs.min():.1f} tokens/s, {turn + 1} turns, median {median:.3f}")
    assert max(best, median) >= 0.97, times
