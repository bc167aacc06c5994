"""*My blocks*: blocks that the user has saved as models, in the folder `my_blocks` of the project."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from mithril_nb.errors import MithrilError, ModelFileError, NameTakenError, UnknownBlockError, UnknownOptionError
from mithril_nb.graph import edit
from mithril_nb.graph.boundary import infer_boundary, is_array
from mithril_nb.graph.paths import component, split_path
from mithril_nb.graph.records import ADD_BLOCK, BOUNDARY, Endpoint, LogicalGraph, Node, Note, node_of
from mithril_nb.models.registry import KINDS
from mithril_nb.models.saving.serialization import LoadLimits, load_graph, save_graph

FOLDER = Path("my_blocks")  # in the working directory of the kernel, which Jupyter sets to the folder of the notebook
# Each file is read for the palette, so that larger ones would delay it.
_LIMITS = LoadLimits(file_bytes=2_000_000, nodes=20_000)


def own_part(kind: str) -> LogicalGraph | None:
    """Return the graph that has the block of a file such as `"my_blocks/encoder.json"`; `None` for another kind.

    Raises:
        ModelFileError: The file cannot be read, or has no blocks.
    """
    path = Path(kind)
    if path.parent != FOLDER:
        return None
    graph, _ = load_graph(path, _LIMITS)
    if not graph.nodes:
        raise ModelFileError(f"{kind!r} has no blocks.")
    if len(graph.nodes) == 1 and not graph.labels:
        return graph
    return edit.add(LogicalGraph(), edit.composite(graph), name=path.stem)[0]


def own_kinds() -> dict[str, str]:
    """Return the files of *My blocks*, with why each cannot be used: `""` if it can."""
    files = sorted(path for path in FOLDER.glob("*.json") if path.is_file())
    return {path.as_posix(): _problem(path.as_posix(), path.stat().st_mtime_ns, len(KINDS)) for path in files}


@lru_cache(1024)
def _problem(kind: str, _changed_ns: int, _kinds: int) -> str:
    try:
        own_part(kind)
    except MithrilError as error:
        first = error.diagnostics[0]
        return " ".join((first.summary, *(text for name, text in first.facts if name == "because")))
    return ""


def save_own(graph: LogicalGraph, path: str, name: str) -> None:
    """Write a block of a graph, or the whole graph for the path `""`, to a new file."""
    file = FOLDER / f"{name}.json"
    if not name.isidentifier():
        raise UnknownOptionError(
            f"{name!r} is no name for a file.", (("needs", "letters, digits and _"),), 'name="encoder"'
        )
    if not graph.nodes:
        raise UnknownBlockError("the model has no blocks to save.", (), ADD_BLOCK)
    if file.exists():
        raise NameTakenError(f"the file {file.as_posix()!r} exists.", (), f'name="{name}_2"')
    names, notes = split_path(path), dict[Endpoint, Note]()
    for at in range(len(names)):
        own, node = ".".join(map(component, (*names[at:], ""))), node_of(graph, names[at])
        notes |= {
            Endpoint(BOUNDARY, f"{name}.{end.port.removeprefix(own)}"): note
            for end, note in graph.notes
            if is_array(end) and end.port.startswith(own)
        }
        graph = node.block.graph or LogicalGraph()
        if at == len(names) - 1:
            graph = infer_boundary((Node(name, node.block),), [], {}, notes)
    try:
        FOLDER.mkdir(exist_ok=True)
    except OSError as error:
        raise ModelFileError(f"cannot write {file.as_posix()!r}.", (("because", str(error)),)) from error
    save_graph(graph, "" if path else name, file)
