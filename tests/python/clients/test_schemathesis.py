"""schemathesis against /openapi.json: no server error, no answer that is not described, no wrong request accepted."""
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import serving

pytest.importorskip("schemathesis")


def test_nothing_is_found(run, tmp_path):
    """A request of the right form may still be refused (a prompt longer than the context, a model that is not served), so
    that positive_data_acceptance is left out."""
    st = shutil.which("st", path=str(Path(sys.executable).parent))
    with serving(run, tmp_path / "log", "--context", "24") as server:
        done = subprocess.run([st, "run", f"{server}/openapi.json", "--checks", "all", "--exclude-checks",
                               "positive_data_acceptance", "--max-examples", "20", "--seed", "1", "--no-color",
                               "--request-timeout", "120", "--max-response-time", "120"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
