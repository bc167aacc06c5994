"""Facts that plugins add to the inspector of a block."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mithril_nb.graph.records import Block, BlockSpecs

Fact = Callable[[str, Block, BlockSpecs], str | None]
"""Returns the text of a fact from the path, the block and its specs; `None` if the block does not have it."""
Function = TypeVar("Function", bound=Fact)
_FACTS: dict[str, Fact] = {}


def inspector_fact(name: str) -> Callable[[Function], Function]:
    """Register a fact that the inspector of the workbench shows for each block that has it.

    Args:
        name: Label of the fact. A second function with the same label replaces the first.

    Examples:
        >>> @inspector_fact("inner blocks")
        ... def inner_blocks(path, block, specs):
        ...     return str(len(block.graph.nodes)) if block.graph else None
        >>> _ = _FACTS.pop("inner blocks")
    """

    def register(function: Function) -> Function:
        _FACTS[name] = function
        return function

    return register


def facts_of(path: str, block: Block, specs: BlockSpecs) -> list[list[str]]:
    """Return the registered facts of a block: pairs of label and text. A fact that raises shows its error as text."""
    found: list[list[str]] = []
    for name, fact in _FACTS.items():
        try:
            text = fact(path, block, specs)
        except Exception as error:  # an error of a plugin must not end the session
            text = f"failed: {type(error).__name__}: {error}"
        if text is not None:
            found.append([name, str(text)])
    return found
