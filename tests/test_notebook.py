"""The notebook in docs/ runs, and shows what its text says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent.parent / "docs" / "latencies.ipynb"
SECONDS = 120


def test_the_notebook_runs(monkeypatch: Any) -> None:
    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOK.parent.parent))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells)  # they would be out of date soon
    NotebookClient(
        notebook, timeout=SECONDS, resources={"metadata": {"path": str(NOTEBOOK.parent)}}
    ).execute()
    shown = ["".join(map(str, cell["outputs"])) for cell in notebook.cells if cell.cell_type == "code"]
    first, throttled, service, exchange, findings = shown
    assert "<th>latency_us</th>" in first
    assert "limited-reader" in throttled
    assert "free-reader" not in throttled
    assert "Produce" in service
    assert "<tr><th>throttled_us</th>" in exchange
    assert "'throttled'" in findings
