"""The stages of a program as a mapping that computes each on first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mithril_nb.errors import StageUnavailableError
from mithril_nb.inspection import Inspection
from mithril_nb.stages import Stage


class LazyStages(Mapping[str, Stage]):
    """Stages by name. Listing the names computes no stage.

    Examples:
        >>> import jax.numpy as jnp
        >>> from mithril_nb.inspection import inspect
        >>> stages = LazyStages(inspect(jnp.sin, jnp.zeros(3)))
        >>> "asm" in stages, len(stages), stages["jaxpr"].unavailable
        (True, 8, None)
    """

    def __init__(self, inspection: Inspection):
        self._inspection = inspection

    def __getitem__(self, name: str) -> Stage:
        try:
            return self._inspection.stage(name)
        except StageUnavailableError as error:
            raise KeyError(name) from error

    def __contains__(self, name: object) -> bool:
        return name in self._inspection.stages

    def __iter__(self) -> Iterator[str]:
        return iter(self._inspection.stages)

    def __len__(self) -> int:
        return len(self._inspection.stages)

    def __repr__(self) -> str:
        made = [name for name in self if self._inspection.has_stage(name)]
        return f"stages({', '.join(self)}; computed: {', '.join(made) or 'none yet'})"
