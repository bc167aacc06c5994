"""Run the notebooks anew, and keep of their outputs what is the same on every machine: `make notebooks`.

Runs inside the environment, with nbclient. What it takes out: views and states of widgets (their static twins stay),
times of execution, the kernel's own metadata. Cells get ids that do not change from run to run.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
PATIENCE_S = 600


def refresh(path: Path) -> None:
    """Run a notebook from a fresh kernel, and write it back with its new outputs.

    Raises:
        CellExecutionError: A cell fails; the file stays as it is.
    """
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=PATIENCE_S, store_widget_state=False, resources={"metadata": {"path": str(path.parent)}}
    ).execute()
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number:02d}", nbformat.from_dict({})
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET_VIEW, None)
            if "metadata" in output:
                output.metadata = nbformat.from_dict({})
    nbformat.validate(notebook)
    nbformat.write(notebook, path)


def main(names: Sequence[str]) -> None:
    """Refresh the notebooks of these names, or all."""
    for path in [FOLDER / Path(name).name for name in names] or sorted(FOLDER.glob("*.ipynb")):
        print(f"running {path.name}", flush=True)
        refresh(path)


if __name__ == "__main__":
    main(sys.argv[1:])
