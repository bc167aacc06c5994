"""The registry of an emitter: a dict from primitives to the functions that write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from jax.errors import InconclusiveDimensionOperation

from mithril_nb.emission.program import Statement
from mithril_nb.emission.unsupported import NAMED_SIZE
from mithril_nb.errors import MithrilError
from mithril_nb.stages.records import format_source

To = TypeVar("To")
Result = TypeVar("Result")


class Rules(dict[str, Callable[[To, Statement], Result]]):
    """A dict from the name of each primitive to the function that emits it.

    The function receives the emitter and a statement. It returns the source of the statement, or writes it to the
    emitter. In the example, the emitter is only the name of a module.

    Examples:
        >>> rules = Rules[str, str]()
        >>> @rules.rule("exp", "log")
        ... def unary(module, statement):
        ...     return f"{module}.{statement.primitive}(x)"
        >>> rules.write("np", Statement("log", (), ()))
        'np.log(x)'
    """

    def rule(
        self, *primitives: str
    ) -> Callable[[Callable[[To, Statement], Result]], Callable[[To, Statement], Result]]:
        """Return a decorator that registers a function for some primitives."""

        def register(function: Callable[[To, Statement], Result]) -> Callable[[To, Statement], Result]:
            self.update(dict.fromkeys(primitives, function))
            return function

        return register

    def write(self, to: To, statement: Statement) -> Result:
        """Call the function for the primitive of a statement.

        If the function raises an error that is not a `MithrilError`, add the primitive, the block and the user's line
        to it as a note.

        Raises:
            UnsupportedPrimitiveError: The function needs the number of a size that is a name.
        """
        try:
            return self[statement.primitive](to, statement)
        except MithrilError:
            raise
        except InconclusiveDimensionOperation as error:
            emitter: Any = to
            raise emitter.unsupported(statement, NAMED_SIZE) from error
        except Exception as error:
            source = statement.source and f", {format_source(statement.source)}"
            error.add_note(f"emitting {statement.primitive!r} of block {statement.block!r}{source}")
            raise
