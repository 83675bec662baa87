"""Where the program and the library are."""
from __future__ import annotations

import os
import shutil
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

INSTALL = "build it (pip install ./python), or set DEEP_DELTA_PREFIX to a folder with bin/ and lib/"


def installed() -> Path:
    """The folder with bin/, lib/ and share/: DEEP_DELTA_PREFIX, or the package's own."""
    given = os.environ.get("DEEP_DELTA_PREFIX")
    own = Path(__file__).parent / "prefix"
    if given or own.is_dir():
        return Path(given or own)
    try:
        return Path(str(distribution("deep-delta").locate_file("deep_delta/prefix")))  # pip install -e
    except PackageNotFoundError:
        return own


def program() -> Path:
    """The program ddl: of the folder above or, without DEEP_DELTA_PREFIX, of PATH."""
    path = installed() / "bin" / "ddl"
    if path.is_file():
        return path
    if os.environ.get("DEEP_DELTA_PREFIX"):
        raise FileNotFoundError(f"{path}: missing: expected the program in the folder DEEP_DELTA_PREFIX")
    found = shutil.which("ddl")
    if found is None:
        raise FileNotFoundError(f"{path}: missing, and PATH has no ddl: {INSTALL}")
    return Path(found)


def gpt2_tokenizer() -> Path:
    """The folder of GPT-2's tokenizer, with which `ddl data build` builds shards if it is given none."""
    path = program().resolve().parent.parent / "share" / "ddl" / "tokenizer"
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: missing")
    return path


def library() -> Path:
    """The shared library libddl.so: in lib/, or in lib64/ or lib/x86_64-linux-gnu/ as distributions have it."""
    folder = installed()
    for pattern in ("lib", "lib*", "lib/*"):
        found = sorted(folder.glob(f"{pattern}/libddl.so*"))
        if found:
            return found[0]
    raise FileNotFoundError(f"{folder / 'lib'}: there is no libddl.so: {INSTALL}")
