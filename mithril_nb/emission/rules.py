"""What emitters share: the registry of rules, and the context that rules receive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from jax.errors import InconclusiveDimensionOperation

from mithril_nb.emission.program import Statement
from mithril_nb.emission.unsupported import NAMED_SIZE, unsupported
from mithril_nb.errors import MithrilError, UnsupportedPrimitiveError
from mithril_nb.stages.records import format_source


class Context:
    """The context that each rule receives: methods that return parts of expressions, or write lines.

    Attributes:
        backend: Name of the backend: `"numpy"`, `"c"`, ...
        at: The statement that is being written; `None` outside of statements.
    """

    backend = ""
    at: Statement | None = None

    @contextmanager
    def writing(self, statement: Statement | None) -> Iterator[None]:
        before, self.at = self.at, statement
        try:
            yield
        finally:
            self.at = before

    def unsupported(self, reason: str = "") -> UnsupportedPrimitiveError:
        """Return the error for the current statement; `reason` is the unsupported use, such as `"strides above 1"`."""
        assert self.at is not None
        return unsupported(self.at, self.backend, reason)

    def combiner(self, op: Statement, supported: Iterable[str]) -> str:
        """Return the primitive by which a reduction combines two items, which must be in `supported`."""
        if op.combiner not in supported:
            raise self.unsupported(f"combining items by a function other than {', '.join(supported)}")
        return op.combiner

    def selected(self, op: Statement) -> str:
        """Return which item of a window `select_and_..._add` selects: `"max"` or `"min"`."""
        primitive = op["select_prim"]
        selected = {"ge": "max", "le": "min"}.get(getattr(primitive, "name", primitive))
        if selected is None:
            raise self.unsupported("selection by a primitive other than ge and le")
        return selected


To = TypeVar("To")
Result = TypeVar("Result")


class Rules(dict[str, Callable[[To, Statement], Result]]):
    """A dict from the name of each primitive to the function that returns its source, or writes it to the context."""

    def rule(
        self, *primitives: str
    ) -> Callable[[Callable[[To, Statement], Result]], Callable[[To, Statement], Result]]:

        def register(function: Callable[[To, Statement], Result]) -> Callable[[To, Statement], Result]:
            self.update(dict.fromkeys(primitives, function))
            return function

        return register

    def write(self, to: To, statement: Statement) -> Result:
        """Call the function for the primitive of a statement. Other errors get a note with its block and line."""
        try:
            return self[statement.primitive](to, statement)
        except MithrilError:
            raise
        except InconclusiveDimensionOperation as error:  # a rule needed the number of a size with a name
            context: Any = to
            raise context.unsupported(NAMED_SIZE) from error
        except Exception as error:
            source = statement.source and f", {format_source(statement.source)}"
            error.add_note(f"emitting {statement.primitive!r} of block {statement.block!r}{source}")
            raise
