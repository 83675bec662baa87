"""The engine of ddl in Python: ctypes over libddl, for inference. The weights stay in the library; a call releases the
interpreter's lock. One engine serves one thread at a time.
"""
from __future__ import annotations

import ctypes as c
import operator
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deep_delta.errors import DdlError
from deep_delta.paths import library
from deep_delta.version import __version__

Floats = NDArray[np.float32]
Ids = NDArray[np.int32]

PRECISIONS = {"f32": 0, "bf16": 1, "tf32": 2, "int8": 3}
CACHES = {"auto": 0, "f32": 1, "bf16": 2}
SYNCHRONOUS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}  # handled by the thread that raised them


class Error(c.Structure):
    """struct ddl_error"""

    _fields_ = [("status", c.c_int), ("text", c.c_char * 1024), ("has_no_hint", c.c_bool)]


class Batch(c.Structure):
    """struct ddl_batch, and the arrays that it points to"""

    arrays: tuple[Ids, Ids]
    _fields_ = [("B", c.c_size_t), ("T", c.c_size_t), ("tokens", c.c_void_p), ("targets", c.c_void_p)]


class Loss(c.Structure):
    """struct ddl_loss"""

    _fields_ = [("sum", c.c_double), ("n_targets", c.c_size_t)]


class RowScores(c.Structure):
    """struct ddl_row_scores"""

    _fields_ = [("losses", c.c_void_p), ("ranks", c.c_void_p), ("entropies", c.c_void_p)]


class LoadOptions(c.Structure):
    """struct ddl_load_options"""

    _fields_ = [("ignore_extra", c.c_bool), ("warn", c.c_void_p), ("user", c.c_void_p), ("no_verify", c.c_bool),
                ("precision", c.c_int)]


class WorkspaceOptions(c.Structure):
    """struct ddl_workspace_options"""

    _fields_ = [("batch", c.c_size_t), ("tokens", c.c_size_t), ("train", c.c_bool), ("recompute", c.c_int),
                ("ranks", c.c_bool)]


class SessionOptions(c.Structure):
    """struct ddl_session_options"""

    _fields_ = [("slots", c.c_size_t), ("tokens", c.c_size_t), ("rows", c.c_size_t), ("exact", c.c_bool),
                ("mark_every", c.c_size_t), ("ids", c.c_size_t), ("form", c.c_int), ("filled", c.c_bool),
                ("progress", c.c_void_p), ("user", c.c_void_p)]


class SessionInput(c.Structure):
    """struct ddl_session_input"""

    _fields_ = [("slot", c.c_size_t), ("n", c.c_size_t), ("tokens", c.c_void_p), ("n_logits", c.c_size_t),
                ("logits", c.c_void_p), ("targets", c.c_void_p), ("losses", c.c_void_p), ("ranks", c.c_void_p),
                ("entropies", c.c_void_p), ("n_choices", c.c_size_t), ("choices", c.c_void_p),
                ("choice_losses", c.c_void_p), ("choice_ranks", c.c_void_p), ("n_picks", c.c_size_t),
                ("picks", c.c_void_p), ("n_top", c.c_size_t), ("top", c.c_void_p)]


class LogitBias(c.Structure):
    """struct ddl_logit_bias"""

    _fields_ = [("token", c.c_int32), ("bias", c.c_float)]


class Sampling(c.Structure):
    """struct ddl_sampling"""

    _fields_ = [("max_tokens", c.c_size_t), ("temperature", c.c_float), ("top_k", c.c_size_t), ("top_p", c.c_float),
                ("min_p", c.c_float), ("repeat_penalty", c.c_float), ("presence_penalty", c.c_float),
                ("frequency_penalty", c.c_float), ("seed", c.c_uint64), ("sequence", c.c_uint64),
                ("ignore_end", c.c_bool), ("stop", c.POINTER(c.c_char_p)), ("n_stop", c.c_size_t),
                ("stop_ids", c.POINTER(c.c_int32)), ("n_stop_ids", c.c_size_t), ("bias", c.POINTER(LogitBias)),
                ("n_bias", c.c_size_t)]


class GenerateConfig(c.Structure):
    """struct ddl_generate_config"""

    _fields_ = [("sampling", Sampling), ("n", c.c_size_t), ("cache", c.c_int)]


TEXT_FN = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_size_t, c.POINTER(c.c_char), c.c_size_t)


class GenerateRequest(c.Structure):
    """struct ddl_generate_request"""

    _fields_ = [("model", c.c_void_p), ("tokenizer", c.c_void_p), ("config", c.POINTER(GenerateConfig)),
                ("prompt", c.c_char_p), ("size", c.c_size_t), ("text", TEXT_FN), ("user", c.c_void_p)]


class GenerateResult(c.Structure):
    """struct ddl_generate_result"""

    _fields_ = [("prompt_tokens", c.c_size_t), ("tokens", c.c_size_t), ("finish", c.c_int)]


class TokenIds(c.Structure):
    """struct ddl_ids"""

    _fields_ = [("ids", c.POINTER(c.c_int32)), ("n", c.c_size_t), ("capacity", c.c_size_t)]


class ConfigStart(c.Structure):
    """The first members of struct ddl_config."""

    _fields_ = [("vocab_size", c.c_size_t), ("n_layers", c.c_size_t), ("n_heads", c.c_size_t), ("d_model", c.c_size_t),
                ("head_dim", c.c_size_t), ("block_size", c.c_size_t)]


class RunModel(c.Structure):
    """struct ddl_run_model"""

    _fields_ = [("path", c.c_char * 1280), ("name", c.c_char * 32), ("has_step", c.c_bool), ("step", c.c_uint64),
                ("is_newer", c.c_bool)]


# The structs above by their names in C: tests compare sizes and offsets with the headers.
STRUCTS = {"ddl_error": Error, "ddl_batch": Batch, "ddl_loss": Loss, "ddl_row_scores": RowScores,
           "ddl_load_options": LoadOptions, "ddl_workspace_options": WorkspaceOptions,
           "ddl_session_options": SessionOptions, "ddl_session_input": SessionInput,
           "ddl_logit_bias": LogitBias, "ddl_sampling": Sampling, "ddl_generate_config": GenerateConfig, "ddl_generate_request": GenerateRequest,
           "ddl_generate_result": GenerateResult, "ddl_ids": TokenIds, "ddl_run_model": RunModel}

# Functions: the type of the result, and of the arguments.
P, SIZE, ERROR = c.c_void_p, c.c_size_t, c.POINTER(Error)
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "ddl_version": (c.c_char_p, []),
    "ddl_status_name": (c.c_char_p, [c.c_int]),
    "ddl_backend_create": (c.c_int, [c.POINTER(P), c.c_char_p, SIZE, ERROR]),
    "ddl_backend_free": (None, [P]),
    "ddl_run_find": (c.c_int, [c.POINTER(RunModel), c.c_char_p, c.c_char_p, c.c_bool, P, P, ERROR]),
    "ddl_run_check_tokenizer": (c.c_int, [c.c_char_p, ERROR]),
    "ddl_model_load_with": (c.c_int, [c.POINTER(P), c.c_char_p, P, c.POINTER(LoadOptions), ERROR]),
    "ddl_model_free": (None, [P]),
    "ddl_model_config": (c.POINTER(ConfigStart), [P]),
    "ddl_model_size": (SIZE, [P]),
    "ddl_workspace_create": (c.c_int, [c.POINTER(P), P, c.POINTER(WorkspaceOptions), ERROR]),
    "ddl_workspace_free": (None, [P]),
    "ddl_model_logits": (c.c_int, [P, P, c.POINTER(Batch), SIZE, P, ERROR]),
    "ddl_model_scores": (c.c_int, [P, P, c.POINTER(Batch), c.POINTER(Loss), c.POINTER(RowScores), ERROR]),
    "ddl_session_create": (c.c_int, [c.POINTER(P), P, c.POINTER(SessionOptions), ERROR]),
    "ddl_session_free": (None, [P]),
    "ddl_session_length": (SIZE, [P, SIZE]),
    "ddl_session_prefill": (c.c_int, [P, c.POINTER(SessionInput), SIZE, ERROR]),
    "ddl_session_step": (c.c_int, [P, SIZE, P, P, P, ERROR]),
    "ddl_session_fork": (c.c_int, [P, SIZE, SIZE, ERROR]),
    "ddl_session_reset": (c.c_int, [P, SIZE, ERROR]),
    "ddl_tokenizer_load": (c.c_int, [c.POINTER(P), c.c_char_p, ERROR]),
    "ddl_tokenizer_free": (None, [P]),
    "ddl_tokenizer_encode": (c.c_int, [P, c.c_char_p, SIZE, c.c_bool, c.POINTER(TokenIds), ERROR]),
    "ddl_tokenizer_bytes": (P, [P, c.c_int32, c.POINTER(SIZE)]),
    "ddl_ids_free": (None, [c.POINTER(TokenIds)]),
    "ddl_generate": (c.c_int, [c.POINTER(GenerateRequest), c.POINTER(GenerateResult), ERROR]),
}


def open_library() -> c.CDLL:
    """Libddl with the types of its functions declared. DdlError if MAJOR.MINOR is not that of the package."""
    path = library()
    lib = c.CDLL(str(path))
    lib.ddl_version.restype = c.c_char_p
    found = lib.ddl_version().decode()
    if __version__ != "0" and found.split(".")[:2] != __version__.split(".")[:2]:
        raise DdlError(f"{path}: wrong version: expected {__version__}, that of the package, found {found}", "unsupported")
    for name, (result, parameters) in FUNCTIONS.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, parameters
    return lib


def choice(what: str, value: str, choices: dict[str, int]) -> int:
    """The number of a choice in the library."""
    if value not in choices:
        raise ValueError(f"{what}: expected one of {', '.join(choices)}, found {value!r}")
    return choices[value]


def ids_of(tokens: ArrayLike) -> Ids:
    """Token ids as the library reads them: int32, in order."""
    given, limits = np.asarray(tokens), np.iinfo(np.int32)
    if given.size and given.dtype.kind not in "iu":
        raise ValueError(f"tokens: expected integers, found {given.dtype}")
    if given.size and not limits.min <= given.min() <= given.max() <= limits.max:
        raise ValueError(f"tokens: expected integers of 32 bits, found {given.min()} to {given.max()}")
    return np.ascontiguousarray(given, np.int32)


def count_of(name: str, value: int) -> int:
    """A number as the library reads it: unsigned, of 64 bits. ctypes would cut it off."""
    number = operator.index(value)
    if not 0 <= number < 1 << 64:
        raise ValueError(f"{name}: expected 0 to {(1 << 64) - 1}, found {number}")
    return number


class Call:
    """A call of the library that a worker makes while another thread waits. function is given the error to fill; it
    refers to all memory that the library uses.
    """

    def __init__(self, function: Callable[[Error], int]) -> None:
        self.function: Callable[[Error], int] | None = function
        self.status, self.error = 0, Error()
        self.ended = False
        self.texts: SimpleQueue[bytes | None] = SimpleQueue()  # for on_text; None: the call has ended
        self.raised: list[BaseException] = []  # the first exception of either thread

    def run(self) -> None:
        """Makes the call, in the worker; nothing the second time."""
        if self.function is None:
            return
        try:
            self.status = self.function(self.error)
        except BaseException as exception:
            self.raised.append(exception)
        self.function = None  # objects of the call are freed before its end
        self.ended = True
        self.texts.put(None)

    def make(self, calls: SimpleQueue[Call | None], on_text: Callable[[str], Any] | None) -> None:
        """Has a worker make the call and waits until it has ended. An exception of on_text or of a signal handler is raised
        after that.
        """
        queued = False
        while True:
            try:
                if not queued:  # after an exception between these lines it is queued twice
                    calls.put(self)
                    queued = True
                while not (self.ended and self.texts.empty()):
                    text = self.texts.get()
                    if text is not None and on_text is not None and not self.raised:
                        on_text(text.decode("utf-8", "replace"))
                break
            except BaseException as exception:
                if not self.raised:
                    self.raised.append(exception)
        if self.raised:
            raise self.raised.pop(0)


class Worker:
    """A thread that computes for the thread that created it, and ends with it.

    It and its OpenMP threads block signals: oneDNN uses the stack pointer as a general register, so that the frame of
    a signal handler, Python's included, would overwrite its buffers.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self.calls: SimpleQueue[Call | None] = SimpleQueue()
        threading.Thread(target=work, args=(self.calls,), name="deep_delta", daemon=True).start()

    def __del__(self) -> None:
        self.calls.put(None)


def work(calls: SimpleQueue[Call | None]) -> None:
    """Makes calls until there is a None."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - SYNCHRONOUS)
    while True:
        call = calls.get()
        if call is None:
            return
        call.run()
        del call


WORKERS = threading.local()  # worker: that of the thread


def compute(call: Call, on_text: Callable[[str], Any] | None = None) -> None:
    """Makes a call in the worker of this thread. on_text gets the call's texts, in this thread."""
    worker: Worker | None = getattr(WORKERS, "worker", None)
    if worker is None or worker.process != os.getpid():  # threads do not survive a fork
        worker = WORKERS.worker = Worker()
    call.make(worker.calls, on_text)


@dataclass
class Scores:
    """Of every position (B, T) of a batch of tokens."""

    loss: float  # mean over all targets, in nats
    losses: Floats  # (B, T) -log p of the target; 0 where it is -1
    ranks: Ids  # (B, T) 0 if greedy decoding would choose the target; -1 where it is -1
    entropies: Floats  # (B, T) of the prediction, in nats


class Handle:
    """An object of the library. owner: what it must not outlive. It is freed after this handle and those that it owns
    are finalized: the collector of cycles finalizes objects in any order.
    """

    def __init__(self, lib: c.CDLL, free: str, owner: Handle | None = None) -> None:
        self.lib, self.free, self.owner = lib, free, owner
        self.pointer = c.c_void_p()
        self.number, self.owned, self.gone = next(NUMBERS), set[int](), False
        if owner is not None:
            owner.owned.add(self.number)

    def check(self, status: int, error: Error) -> None:
        """Raises DdlError for a status other than ok."""
        if status != 0:
            raise DdlError(error.text.decode("utf-8", "replace"), self.lib.ddl_status_name(status).decode())

    def release(self) -> None:
        """Frees the object, then its owner, where nothing needs them any more."""
        if not self.gone or self.owned:
            return
        pointer, self.pointer = self.pointer, c.c_void_p()
        try:
            if pointer:
                getattr(self.lib, self.free)(pointer)
        finally:  # also after an exception of a signal handler
            if self.owner is not None and self.number in self.owner.owned:
                self.owner.owned.discard(self.number)
                self.owner.release()

    def __del__(self) -> None:
        self.gone = True
        self.release()


NUMBERS = count()


class Engine:
    """A model for inference.

    path: a model folder, or a run, of which `which` selects the model: "last", "best", "final" or a step.
    dtype: "f32", "bf16", "int8" or, with backend "cuda", "tf32": the format of the weights in products. threads 0: one
    for each core. verify: compare the files with their checksums. tokenizer: a folder, tokenizer.json, or
    "gpt2"; default: the one in the model folder.
    """

    def __init__(self, path: str | os.PathLike[str], which: str | int = "last", dtype: str = "f32", threads: int = 0,
                 backend: str | None = None, verify: bool = True,
                 tokenizer: str | os.PathLike[str] | None = None) -> None:
        precision = choice("dtype", dtype, PRECISIONS)
        self.lib = lib = open_library()
        error, found = Error(), RunModel()
        self._backend = Handle(lib, "ddl_backend_free")
        self._model = Handle(lib, "ddl_model_free", self._backend)
        self._check = self._model.check
        self._check(lib.ddl_run_find(found, os.fsencode(path), str(which).encode(), verify, None, None, error), error)
        self.path = Path(os.fsdecode(found.path))
        name = backend.encode() if backend else None
        self._call(lambda error: lib.ddl_backend_create(self._backend.pointer, name, threads, error))
        # ddl_run_find has compared the files.
        options = LoadOptions(no_verify=True, precision=precision)
        self._call(lambda error: lib.ddl_model_load_with(self._model.pointer, found.path, self._backend.pointer, options,
                                                         error))
        config = lib.ddl_model_config(self._model.pointer).contents
        self.vocab_size, self.context = int(config.vocab_size), int(config.block_size)
        self.parameters = int(lib.ddl_model_size(self._model.pointer))
        # As it was given: "gpt2" is a name, "./gpt2" a folder.
        self._tokenizer_path = os.fsencode(self.path if tokenizer is None else tokenizer)
        self._verify_tokenizer = verify and tokenizer is not None
        self._tokenizer: Handle | None = None

    def _call(self, function: Callable[[Error], int]) -> None:
        """Makes a call in the worker of this thread. Raises DdlError for a status other than ok."""
        call = Call(function)
        compute(call)
        self._check(call.status, call.error)

    def tokenizer(self) -> Handle:
        """The tokenizer, loaded when it is first needed."""
        if self._tokenizer is None:
            loaded, error = Handle(self.lib, "ddl_tokenizer_free"), Error()
            path = self._tokenizer_path
            if self._verify_tokenizer:
                self._check(self.lib.ddl_run_check_tokenizer(path, error), error)
            self._check(self.lib.ddl_tokenizer_load(loaded.pointer, path, error), error)
            self._tokenizer = loaded
        return self._tokenizer

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The token ids of a text. special: texts of special tokens become their ids."""
        ids, error, raw = TokenIds(), Error(), text.encode()
        try:
            self._check(self.lib.ddl_tokenizer_encode(self.tokenizer().pointer, raw, len(raw), special, ids, error), error)
            return [int(token) for token in ids.ids[:ids.n]]
        finally:
            self.lib.ddl_ids_free(ids)

    def decode(self, tokens: ArrayLike) -> str:
        """The text of token ids; bytes that are not UTF-8 are replaced by U+FFFD."""
        out, size = b"", c.c_size_t()
        for token in ids_of(tokens).ravel().tolist():
            text = self.lib.ddl_tokenizer_bytes(self.tokenizer().pointer, token, size)
            if text is None:
                raise ValueError(f"token {token}: the tokenizer has none of this id")
            out += c.string_at(text, size.value)
        return out.decode("utf-8", "replace")

    def _batch(self, tokens: ArrayLike, targets: ArrayLike | None) -> Batch:
        """A batch of tokens, by default with each sequence's next tokens as targets."""
        rows = np.atleast_2d(ids_of(tokens))
        if rows.ndim != 2 or rows.size == 0:
            raise ValueError(f"tokens: expected a sequence of ids, or an array (B, T), found shape {rows.shape}")
        if targets is None:
            expected = np.full_like(rows, -1)
            expected[:, :-1] = rows[:, 1:]
        else:
            expected = np.atleast_2d(ids_of(targets))
            if expected.shape != rows.shape:
                raise ValueError(f"targets: expected the shape of tokens, {rows.shape}, found {expected.shape}")
        batch = Batch(rows.shape[0], rows.shape[1], rows.ctypes.data, expected.ctypes.data)
        batch.arrays = rows, expected
        return batch

    def _workspace(self, batch: Batch, ranks: bool) -> Handle:
        """Memory for a pass over a batch, allocated and freed in the worker."""
        workspace, error = Handle(self.lib, "ddl_workspace_free", self._model), Error()
        options = WorkspaceOptions(batch=batch.B, tokens=batch.T, ranks=ranks)
        self._check(self.lib.ddl_workspace_create(workspace.pointer, self._model.pointer, options, error), error)
        return workspace

    def logits(self, tokens: ArrayLike, rows: int | None = None) -> Floats:
        """Logits (B, rows, V) of the last `rows` positions of tokens (B, T), by default of all. One sequence (T)
        gives (rows, V).
        """
        batch = self._batch(tokens, None)
        rows = batch.T if rows is None else rows
        if not 1 <= rows <= batch.T:
            raise ValueError(f"rows: expected 1 to {batch.T}, found {rows}")
        out = np.empty((batch.B, rows, self.vocab_size), np.float32)

        def compute_logits(error: Error) -> int:
            workspace = self._workspace(batch, False)
            return int(self.lib.ddl_model_logits(self._model.pointer, workspace.pointer, batch, rows, out.ctypes.data,
                                                 error))

        self._call(compute_logits)
        return out if np.ndim(tokens) == 2 else out[0]

    def scores(self, tokens: ArrayLike, targets: ArrayLike | None = None) -> Scores:
        """Losses of tokens (B, T) against targets (B, T), -1 where there is none; by default each sequence's next
        token, the last one without.
        """
        batch = self._batch(tokens, targets)
        shape, loss = (batch.B, batch.T), Loss()
        losses, entropies, ranks = np.empty(shape, np.float32), np.empty(shape, np.float32), np.empty(shape, np.int32)

        def compute_scores(error: Error) -> int:
            workspace = self._workspace(batch, True)
            rows = RowScores(losses.ctypes.data, ranks.ctypes.data, entropies.ctypes.data)
            return int(self.lib.ddl_model_scores(self._model.pointer, workspace.pointer, batch, loss, rows, error))

        self._call(compute_scores)
        return Scores(loss.sum / loss.n_targets if loss.n_targets else float("nan"), losses, ranks, entropies)

    def session(self, slots: int = 1, tokens: int | None = None, cache: str = "auto") -> Session:
        """Sequences that grow, each in a slot of its own with a capacity of `tokens` (default: the context)."""
        return Session(self, slots, self.context if tokens is None else tokens, cache)

    def generate(self, prompt: str = "", *, max_tokens: int = 200, temperature: float = 1.0, top_k: int = 0,
                 top_p: float = 1.0, min_p: float = 0.0, repeat_penalty: float = 1.0, presence_penalty: float = 0.0,
                 frequency_penalty: float = 0.0, seed: int = 0, ignore_end: bool = False, stop: str | Sequence[str] = (),
                 stop_ids: Sequence[int] = (), logit_bias: Mapping[int, float] | None = None, cache: str = "auto",
                 on_text: Callable[[str], Any] | None = None) -> str:
        """Text after a prompt (empty: the end-of-text token), as `ddl generate` with the same options. on_text gets
        each piece as soon as it is certain; an exception in it ends the generation and is raised.
        """
        stop = [stop] if isinstance(stop, str) else stop
        if any("\0" in item for item in stop):
            raise ValueError("stop: expected texts without the character U+0000")
        bias = logit_bias or {}
        stop_ids, biased = ids_of(list(stop_ids)).tolist(), ids_of(list(bias)).tolist()
        texts = (c.c_char_p * len(stop))(*[item.encode() for item in stop])
        biases = (LogitBias * len(bias))(*[LogitBias(*item) for item in zip(biased, bias.values())])
        sampling = Sampling(count_of("max_tokens", max_tokens), temperature, count_of("top_k", top_k), top_p, min_p,
                            repeat_penalty, presence_penalty, frequency_penalty, count_of("seed", seed), 0, ignore_end, texts,
                            len(stop),
                            (c.c_int32 * len(stop_ids))(*stop_ids), len(stop_ids), biases, len(biases))
        config = GenerateConfig(sampling, 1, choice("cache", cache, CACHES))
        pieces: list[bytes] = []

        def receive(user: Any, sequence: int, text: Any, size: int) -> int:
            pieces.append(c.string_at(text, size))
            if on_text is not None:
                call.texts.put(pieces[-1])
            return 1 if call.raised else 0

        raw, result, tokens = prompt.encode(), GenerateResult(), self.tokenizer()

        def generate_text(error: Error) -> int:
            request = GenerateRequest(self._model.pointer, tokens.pointer, c.pointer(config), raw, len(raw),
                                      TEXT_FN(receive), None)
            return int(self.lib.ddl_generate(request, result, error))

        call = Call(generate_text)
        compute(call, on_text)
        self._check(call.status, call.error)
        return b"".join(pieces).decode("utf-8", "replace")


class Session:
    """Slots with sequences of their own lengths (Engine.session)."""

    def __init__(self, engine: Engine, slots: int, tokens: int, cache: str) -> None:
        self.engine = engine
        self._session = Handle(engine.lib, "ddl_session_free", engine._model)
        options = SessionOptions(slots=count_of("slots", slots), tokens=count_of("tokens", tokens), form=choice("cache", cache, CACHES))
        engine._call(lambda error: engine.lib.ddl_session_create(self._session.pointer, engine._model.pointer, options,
                                                                 error))

    def length(self, slot: int = 0) -> int:
        """Tokens in a slot."""
        return int(self.engine.lib.ddl_session_length(self._session.pointer, count_of("slot", slot)))

    def prefill(self, tokens: ArrayLike, slot: int = 0, n_logits: int = 1) -> Floats:
        """Appends tokens (n) to a slot. Returns the logits (n_logits, V) after the last n_logits of them."""
        ids = ids_of(tokens).ravel()
        out = np.empty((n_logits, self.engine.vocab_size), np.float32)

        def append(error: Error) -> int:
            given = SessionInput(slot=count_of("slot", slot), n=ids.size, tokens=ids.ctypes.data, n_logits=n_logits,
                                 logits=out.ctypes.data if n_logits else None)
            return int(self.engine.lib.ddl_session_prefill(self._session.pointer, given, 1, error))

        self.engine._call(append)
        return out

    def step(self, tokens: ArrayLike, slots: Sequence[int] | None = None) -> Floats:
        """Appends one token to each of n slots (default: the first n). Returns the logits (n, V) after them."""
        ids = ids_of(tokens).ravel()
        where = np.array(range(ids.size) if slots is None else [count_of("slots", slot) for slot in slots], np.uintp)
        if where.size != ids.size:
            raise ValueError(f"slots: expected {ids.size}, one a token, found {where.size}")
        out = np.empty((ids.size, self.engine.vocab_size), np.float32)
        self.engine._call(lambda error: self.engine.lib.ddl_session_step(
            self._session.pointer, ids.size, where.ctypes.data, ids.ctypes.data, out.ctypes.data, error))
        return out

    def fork(self, source: int, target: int) -> None:
        """Copies slot source to slot target, whose content is replaced."""
        slots = count_of("source", source), count_of("target", target)
        self.engine._call(lambda error: self.engine.lib.ddl_session_fork(self._session.pointer, *slots, error))

    def reset(self, slot: int = 0) -> None:
        """Empties a slot."""
        which = count_of("slot", slot)
        self.engine._call(lambda error: self.engine.lib.ddl_session_reset(self._session.pointer, which, error))
