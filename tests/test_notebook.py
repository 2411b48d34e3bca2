"""The notebook in docs/ runs in a real Jupyter kernel, from start to end, on what comes with the package."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbformat, which nbclient brings")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def test_the_notebook_is_committed_without_outputs() -> None:
    cells = [cell for cell in nbformat.read(NOTEBOOK, 4).cells if cell.cell_type == "code"]
    assert [(cell.execution_count, cell.outputs) for cell in cells] == [(None, [])] * len(cells)


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ipykernel", reason="needs ipykernel")
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "MPLCONFIGDIR", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(NOTEBOOK, 4)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()

    shown = {cell.source.rpartition("\n")[2]: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}
    assert shown["labels"][-1].data["text/plain"].startswith("Labels(93 solutions")
    assert "93 rows in" in shown["labels"][0].text  # the summary, on stderr
    one = shown["labels[1]"][0].data
    assert ">first error</b>" in one["text/html"]
    assert len(one["text/plain"]) < 400
    assert "linear" in shown["verifier"][-1].data["text/html"]
    assert shown["scored"][-1].data["text/plain"].endswith("ok 100)")
    assert "image/png" in shown["plt.legend();"][-1].data
