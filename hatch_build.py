"""The build hooks: packages carry the built front end, and a README whose links work on a package page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent))
from tools import bundle, nodejs


class FrontendBuildHook(BuildHookInterface):
    """Builds the front end if it is not built, with Node.js from the machine or from a Python package."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Ask for Node.js as a Python package only where there is something to build and the machine has none."""
        fresh = bundle.is_fresh(Path(self.root))
        return [] if fresh or nodejs.on_path() is not None else [nodejs.PACKAGE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build before the files are collected."""
        bundle.build(Path(self.root))


class AddressHook(MetadataHookInterface):
    """Sets `project.urls`, and makes the links of the README absolute.

    The files do not contain the address of the repository, because a fork has another one. It is read from the variable
    `MITHRIL_NB_REPOSITORY`, or from git. Without either, there are no urls, and the links stay relative.
    """

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in the dynamic fields of the project."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        address = os.environ.get("MITHRIL_NB_REPOSITORY") or _address_from_git(self.root)
        if address:
            metadata["urls"] = {
                "Repository": address,
                "Documentation": f"{address}/tree/main/docs",
                "Changelog": f"{address}/blob/main/CHANGELOG.md",
                "Issues": f"{address}/issues",
            }
            text = with_absolute_links(with_badges(text, address), address)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def with_absolute_links(text: str, address: str) -> str:
    """Return Markdown whose relative links and pictures lead to the main branch of a repository.

    Examples:
        >>> print(with_absolute_links("![a](b.png) [c](d.md#e) [f](#g)", "https://example.org/h"))
        ![a](https://example.org/h/raw/main/b.png) [c](https://example.org/h/blob/main/d.md#e) [f](#g)
    """
    text = re.sub(r"(!\[[^]]*\]\()(?![a-z]+:|#)", rf"\1{address}/raw/main/", text)
    return re.sub(r"((?<!!)\[[^]]*\]\()(?![a-z]+:|#)", rf"\1{address}/blob/main/", text)


def with_badges(text: str, address: str) -> str:
    """Return the README with badges that open the first notebook in Binder and Colab, if the repository is on GitHub.

    Examples:
        >>> print(with_badges("# name", "https://github.com/group/name"))  # doctest: +ELLIPSIS
        # name
        <BLANKLINE>
        [![Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/group/name/main?urlpath=lab/tree/...
    """
    match = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+)", address)
    if match is None:
        return text
    first, binder, colab = (
        "notebooks/01_build_and_train.ipynb",
        "https://mybinder.org",
        "https://colab.research.google.com",
    )
    badges = (
        f"[![Binder]({binder}/badge_logo.svg)]({binder}/v2/gh/{match[1]}/main?urlpath=lab/tree/{first}) "
        f"[![Colab]({colab}/assets/colab-badge.svg)]({colab}/github/{match[1]}/blob/main/{first})"
    )
    title, *rest = text.split("\n", 1)
    return "\n".join([title, "", badges, *rest])


def _address_from_git(root: str) -> str:
    done = subprocess.run(["git", "-C", root, "remote", "get-url", "origin"], capture_output=True, text=True)
    match = re.fullmatch(r"(?:https://|(?:ssh://)?git@)([\w.-]+)[:/]([\w./-]+?)(?:\.git)?/?", done.stdout.strip())
    return f"https://{match[1]}/{match[2]}" if match else ""
