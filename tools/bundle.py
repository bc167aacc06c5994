"""Build the front end: TypeScript in `mithril_nb/ui/frontend` becomes `mithril_nb/viz/static`.

The build hook of the package (`hatch_build.py`) and `make` call this. It skips a bundle whose sources have not changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from tools import nodejs
from tools.steps import Stop, run, run_quietly, say, tail

FRONTEND, STATIC = Path("mithril_nb/ui/frontend"), Path("mithril_nb/viz/static")
FILES = ("THIRD_PARTY_LICENSES.txt", "assets.js", "curves.js", "explorer.js", "outputs.js", "page.js", "workbench.js")
"""Files of a complete bundle; the licences are those of the packages whose code it contains."""

SHARED = Path("mithril_nb/viz/tokens.json")
"""Source of the bundle outside of the front end; Python renders static pages with it too."""

STAMP = "bundle.json"
_NOT_BUILT_FROM = {"node_modules", "tests", "fixtures", "dev", "coverage"}


def digest(root: Path) -> str:
    """Return a hash of all sources of the bundle."""
    frontend = root / FRONTEND
    found = hashlib.sha256()
    sources = {path.relative_to(frontend): path for path in frontend.rglob("*")}
    sources = {relative: path for relative, path in sources.items() if relative.parts[0] not in _NOT_BUILT_FROM}
    sources[SHARED] = root / SHARED
    for relative, path in sorted(sources.items(), key=lambda item: item[0].as_posix()):
        if path.is_file():
            content = path.read_bytes().replace(b"\r\n", b"\n")  # equal on a checkout with Windows line ends
            found.update(f"{relative.as_posix()}\0{len(content)}\0".encode())
            found.update(content)
    return found.hexdigest()


def has_sources(root: Path) -> bool:
    """Return whether the front end's sources are present; a wheel contains only the bundle."""
    return (root / FRONTEND / "package.json").exists()


def is_complete(root: Path) -> bool:
    """Return whether all files of the bundle are present."""
    return all((root / STATIC / name).exists() for name in FILES)


def is_fresh(root: Path) -> bool:
    """Return whether the bundle is complete and was built from the current sources."""
    if not is_complete(root):
        return False
    if not has_sources(root):
        return True
    try:
        built_from = json.loads((root / STATIC / STAMP).read_text(encoding="utf-8"))["sources"]
    except (OSError, ValueError, KeyError):
        return False
    return built_from == digest(root)


def build(root: Path, *package_folders: Path) -> None:
    """Build the bundle unless it is fresh.

    Args:
        root: The clone, or the unpacked source distribution.
        package_folders: `site-packages` folders where Node.js may be found.

    Raises:
        Stop: The bundle is missing and cannot be built, or npm failed.
    """
    if is_fresh(root):
        say("   the front end is built")
        return
    if not has_sources(root):
        raise Stop(
            "the front end is missing, and so are its sources.",
            [f"bundle   {root / STATIC}", f"sources  {root / FRONTEND}"],
            "git checkout -- mithril_nb/ui/frontend",
        )
    node = install_packages(root, *package_folders)
    say(f"   building the front end (Node.js {node.version})")
    sources = digest(root)
    _npm(root, node, "run", "build")
    missing = [name for name in FILES if not (root / STATIC / name).exists()]
    if missing:
        raise Stop("`npm run build` succeeded but did not write all files.", [f"missing  {', '.join(missing)}"])
    (root / STATIC / STAMP).write_text(json.dumps({"sources": sources}) + "\n", encoding="utf-8")


def install_packages(root: Path, *package_folders: Path) -> nodejs.Node:
    """Install the packages in `package-lock.json`, and return the Node.js to use.

    Raises:
        Stop: Node.js is missing, or npm failed.
    """
    node = nodejs.find(*package_folders)
    if node is None:
        raise Stop(
            "Node.js is needed to build the front end.",
            [f"needed  Node.js {'.'.join(map(str, nodejs.OLDEST))} or newer with npm"],
            f"pip install '{nodejs.PACKAGE}'",
        )
    if not _are_installed(root):
        say(f"   fetching the front end's packages (npm, Node.js {node.version})")
        _npm(root, node, "ci", "--no-fund", "--no-audit")
    return node


def npm_run(root: Path, script: str, *package_folders: Path) -> int:
    """Run a script of the front end's package, and return its exit status."""
    node = install_packages(root, *package_folders)
    return run([*node.npm, "run", "--silent", script], node.environment(), root / FRONTEND)


def _npm(root: Path, node: nodejs.Node, *arguments: str) -> None:
    log = root / ".make" / f"npm-{'-'.join(word for word in arguments if word.isalpha())}.log"
    status = run_quietly([*node.npm, *arguments], log, node.environment(), cwd=root / FRONTEND)
    if status:
        raise Stop(f"`npm {' '.join(arguments)}` failed with status {status}.", [tail(log), f"log  {log}"])


def _locked(root: Path) -> dict[str, dict]:
    return json.loads((root / FRONTEND / "package-lock.json").read_text(encoding="utf-8"))["packages"]


def _are_installed(root: Path) -> bool:
    # npm lists what it installed; packages for other systems are only in package-lock.json.
    try:
        kept = json.loads((root / FRONTEND / "node_modules/.package-lock.json").read_text(encoding="utf-8"))["packages"]
    except (OSError, ValueError, KeyError):
        return False
    return all(kept.get(place, {}).get("version") == entry["version"] for place, entry in _needed(root))


def _needed(root: Path) -> Iterator[tuple[str, dict]]:
    for place, entry in _locked(root).items():
        if place and not entry.get("optional") and not entry.get("peer"):
            yield place, entry
