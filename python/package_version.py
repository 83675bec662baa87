"""Gives the build of the package (pyproject.toml) its version: that of include/ddl/version.h."""
from __future__ import annotations

import re
from pathlib import Path
from typing import Any


def dynamic_metadata(field: str, settings: dict[str, Any] | None = None) -> str:
    """MAJOR.MINOR.PATCH, from the sources above this folder, or in source/ in a source archive."""
    if field != "version" or settings:
        raise ValueError("package_version gives the version only, and has no settings")
    here = Path(__file__).parent
    headers = [folder / "include/ddl/version.h" for folder in (here / "source", here.parent)]
    text = next(header for header in headers if header.is_file()).read_text()
    return ".".join(re.findall(r"^#define DDL_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", text, re.M))
