"""examples/first_look.ipynb runs, and shows what it says."""
import shutil

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")
pytest.importorskip("pandas")

from conftest import SOURCE  # noqa: E402

PATH = SOURCE / "examples/first_look.ipynb"


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """The notebook after it has run, in its own folder; what it writes is in one of the tests."""
    notebook = nbformat.read(PATH, as_version=4)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TMPDIR", str(tmp_path_factory.mktemp("notebook")))
        nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3",
                                resources={"metadata": {"path": str(PATH.parent)}}).execute()
    return notebook


def outputs(notebook, kind):
    """The outputs of a MIME type, in order."""
    return [output["data"][kind] for cell in notebook.cells if cell.cell_type == "code"
            for output in cell.outputs if kind in output.get("data", {})]


def test_it_is_stored_without_outputs():
    stored = nbformat.read(PATH, as_version=4)
    nbformat.validate(stored)
    assert all(not cell.outputs and cell.execution_count is None for cell in stored.cells if cell.cell_type == "code")


def test_it_runs_and_plots(notebook):
    assert len(outputs(notebook, "image/png")) == 4
    assert "ddl-1" in outputs(notebook, "text/html")[-1]  # the table of ddl compare
