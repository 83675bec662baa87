"""The errors of the program and the library as exceptions."""
from __future__ import annotations


class DdlError(Exception):
    """A call or command that failed. The text is the library's message; status its name: "usage", "io", "format",
    "memory", "unsupported", "interrupted", "numeric" or "device", and for commands "failed", "usage" or "interrupted".
    """

    def __init__(self, message: str, status: str) -> None:
        super().__init__(message)
        self.status = status
