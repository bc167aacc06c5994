"""`make notebooks`: run the notebooks, and save the outputs that are the same on every machine.

It runs inside the environment, with nbclient. It removes widget views and states (the static fallbacks stay),
execution times, and the kernel's metadata. Cell ids are the same in every run. Lessons, whose names start with 1, are
saved without outputs, because students predict them.
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
IGNORED = "nbval-ignore-output"
"""Tag of cells whose output nbval does not compare: it differs between machines, or is not saved."""
REPAIR = "repair"
"""Tag of cells that are collapsed until the student opens them."""


def refresh(path: Path) -> None:
    """Run a notebook in a fresh kernel, and save it with its new outputs.

    Raises:
        CellExecutionError: A cell fails; the file is unchanged.
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
        tags = cell.metadata.get("tags", [])
        if is_lesson(path) and cell.cell_type == "code":
            cell.outputs, cell.execution_count, tags = [], None, [IGNORED]
        hidden = {"jupyter": {"source_hidden": True, "outputs_hidden": True}} if REPAIR in tags else {}
        cell.id, cell.metadata = f"cell-{number:02d}", nbformat.from_dict(hidden | ({"tags": tags} if tags else {}))
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET_VIEW, None)
            if "metadata" in output:
                output.metadata = nbformat.from_dict({})
    nbformat.validate(notebook)
    nbformat.write(notebook, path)


def is_lesson(path: Path) -> bool:
    """Return whether a notebook is a lesson, whose outputs students predict."""
    return path.name.startswith("1")


def main(names: Sequence[str]) -> None:
    """Refresh the named notebooks, or all."""
    for path in [FOLDER / Path(name).name for name in names] or sorted(FOLDER.glob("*.ipynb")):
        print(f"running {path.name}", flush=True)
        refresh(path)


if __name__ == "__main__":
    main(sys.argv[1:])
