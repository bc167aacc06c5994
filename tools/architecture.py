"""The picture of the rooms in docs/architecture.svg, drawn from the imports of the package.

python -m tools.architecture
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from graphlib import TopologicalSorter
from html import escape
from pathlib import Path

from mithril_nb.viz.diagrams.layout import arrange_lines
from mithril_nb.viz.diagrams.nested import Box
from mithril_nb.viz.svg import arrow, rounded_path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "mithril_nb"
PICTURE = ROOT / "docs" / "architecture.svg"
DOORS = {"__init__", "display"}
"""Files that import upper rooms on demand."""
HIDDEN = {"__main__", "atomic_write", "errors", "figures", "jobs", "plugins"} | DOORS
"""Files without an arrow in the picture: nearly every room imports them."""
WIDTH, HEIGHT, MARGIN = 92, 30, 8


@cache
def imports_between_rooms() -> dict[str, set[str]]:
    """Return the rooms that each room imports: the folders and files directly in the package."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).parts
        room = parts[0].removesuffix(".py")
        if "node_modules" in parts or room in HIDDEN:
            continue
        found[room] |= set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "mithril_nb":
                names = [f"mithril_nb.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            rooms = {name.split(".")[1] for name in names if name.startswith("mithril_nb.")}
            found[room] |= rooms - HIDDEN - {room}
    return dict(found)


def without_implied(needs: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the imports without those that follow from others, as `a` -> `c` from `a` -> `b` -> `c`."""

    @cache
    def reached(room: str) -> frozenset[str]:
        return frozenset(needs[room]).union(*map(reached, needs[room]))

    return {
        room: {one for one in into if not any(one in reached(other) for other in into)} for room, into in needs.items()
    }


def picture() -> str:
    """Return the rooms as SVG: each imports only from rooms below it; an arrow leads to the imported room."""
    needs = {room: sorted(into) for room, into in sorted(without_implied(imports_between_rooms()).items())}
    rooms = list(TopologicalSorter(needs).static_order())[::-1]
    placed = arrange_lines(
        {room: Box(room, room, "room", WIDTH, HEIGHT) for room in rooms},
        {(room, room): [(one, room) for one in needs[room]] for room in rooms},
    )
    size = f"{placed.w + 2 * MARGIN:g} {placed.h + 2 * MARGIN:g}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-MARGIN} {-MARGIN} {size}"'
        ' role="img" font-family="system-ui, sans-serif" font-size="13">',
        "<title>Rooms of mithril_nb and their imports</title>",
        "<style>rect{fill:#eef3fb;stroke:#5b7fb5}text{fill:#16233a}.line{fill:none;stroke:#6b7480}.head{fill:#6b7480}"
        "@media (prefers-color-scheme:dark){rect{fill:#1d2a3f;stroke:#7fa3d8}text{fill:#e6edf7}"
        ".line{stroke:#98a2b0}.head{fill:#98a2b0}}</style>",
    ]
    for ((room, _), (one, _)), points in placed.routes.items():
        lines.append(f'<path class="line" data-imports="{room} {one}" d="{rounded_path(points)}"/>')
        lines.append(f'<path class="head" d="{arrow(*points[-2:])}"/>')
    for room, (x, y) in placed.corners.items():
        lines.append(f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="5"/>')
        lines.append(f'<text x="{x + WIDTH / 2:g}" y="{y + 20:g}" text-anchor="middle">{escape(room)}</text>')
    return "\n".join([*lines, "</svg>\n"])


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
