"""Costs of a program by several ways of counting, side by side."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from mithril_nb.cost.costs import Cost
from mithril_nb.cost.hlo.xla import Memory
from mithril_nb.display import Shown, draw, finite
from mithril_nb.errors import StageUnavailableError, UnknownOptionError, nearest


@dataclass(frozen=True)
class Costs(Shown, Mapping[str, Cost]):
    """Costs of a program by several ways of counting, side by side: a mapping from source to costs.

    Attributes:
        program: Name of the program.
        by_source: Its costs by way of counting. Blocks and shares are shown for the first.
        memory: The memory of the compiled program, if it is compiled.
        unavailable: Why costs are not available, by way of counting.

    Examples:
        >>> import jax.numpy as jnp
        >>> from mithril_nb.inspection import inspect
        >>> costs = inspect(jnp.tanh, jnp.zeros(8)).costs("analytic", "lowered")
        >>> {source: cost.total.transcendentals for source, cost in costs.items()}
        {'analytic': 8, 'lowered': 8}
    """

    program: str
    by_source: Mapping[str, Cost]
    memory: Memory | None = None
    unavailable: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def __getitem__(self, source: str) -> Cost:
        """Return the costs by one way of counting.

        Raises:
            StageUnavailableError: They are not available.
            UnknownOptionError: They were not requested, or the source is unknown.
        """
        if source in self.by_source:
            return self.by_source[source]
        if source in self.unavailable:
            raise StageUnavailableError(
                f"program {self.program!r} has no {source} costs.",
                (("reason", self.unavailable[source]),),
                f'costs["{next(iter(self), "analytic")}"]',
            )
        raise UnknownOptionError(
            f"costs of {self.program!r} by {source!r} are not among these.",
            (("sources", ", ".join(self) or "none"),),
            f'costs["{nearest(source, self) or next(iter(self), "analytic")}"]',
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_source)

    def __len__(self) -> int:
        return len(self.by_source)

    def __contains__(self, source: object) -> bool:
        return source in self.by_source

    def get(self, source: str, default: Any = None, /) -> Any:
        """Return the costs by one way of counting; `default` if there are none."""
        return self.by_source.get(source, default)

    def to_dict(self, *, rows: bool = True) -> dict[str, Any]:
        """Return the costs as plain data: `program`, `sources` (`Cost.to_dict` by name), `memory`, `unavailable`."""
        return {
            "program": self.program,
            "sources": {name: cost.to_dict(rows=rows) for name, cost in self.by_source.items()},
            "memory": None if self.memory is None else asdict(self.memory),
            "unavailable": dict(self.unavailable),
        }

    def to_json(self, *, rows: bool = True) -> str:
        """Return the costs as JSON."""
        return json.dumps(finite(self.to_dict(rows=rows)), allow_nan=False)

    def __repr__(self) -> str:
        return f"Costs({self.program!r}: {', '.join(self.by_source)})"

    def __str__(self) -> str:
        return f"{self.program}: {', '.join(self)}\n{draw(self, 'exact text')}"
