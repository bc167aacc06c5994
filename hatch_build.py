"""The build hook: a wheel, an editable install and a source distribution carry the built front end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

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
