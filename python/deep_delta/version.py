"""The version of the package."""
from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("deep-delta")
except PackageNotFoundError:  # a source tree that is not installed
    __version__ = "0"
