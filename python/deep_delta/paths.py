"""Where the program and the library are."""
from __future__ import annotations

import os
import shutil
from pathlib import Path


def installed() -> Path:
    """The folder with bin/, lib/ and share/: DEEP_DELTA_PREFIX, or the package's own."""
    return Path(os.environ.get("DEEP_DELTA_PREFIX") or Path(__file__).parent / "prefix")


def program() -> Path:
    """The program ddl: of the folder above or, in a package without one, of PATH."""
    path = installed() / "bin" / "ddl"
    if path.is_file():
        return path
    found = shutil.which("ddl")
    if found is None:
        raise FileNotFoundError(f"{path}: missing, and PATH has no ddl")
    return Path(found)


def gpt2_tokenizer() -> Path:
    """The folder of GPT-2's tokenizer, with which `ddl data build` builds shards if it is given none."""
    path = program().resolve().parent.parent / "share" / "ddl" / "tokenizer"
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: missing")
    return path


def library() -> Path:
    """The shared library libddl.so."""
    found = sorted((installed() / "lib").glob("libddl.so*"))
    if not found:
        raise FileNotFoundError(f"{installed() / 'lib'}: there is no libddl.so")
    return found[0]
