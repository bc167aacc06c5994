"""Composite blocks with their own kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from mithril_nb.models.fields import Declared, keyword_field, passed_on
from mithril_nb.models.model import Model
from mithril_nb.models.registry import KINDS, refuse_second


class Composite(Model, Declared):
    """Base of the blocks that are built from other blocks. A subclass adds these blocks in its method `compose`.

    The annotated fields of the subclass, as in a dataclass, are its attributes: the arguments of its constructor, in
    this order and before `name`. They are numbers, strings or other plain data, from which the workbench and saved
    files rebuild the block. A subclass that takes blocks has a constructor instead, which passes only `name` to
    `super().__init__`, and saved files store the inner blocks.

    Attributes:
        category: The section of the workbench's palette that shows the block; `""` if its constructor takes blocks.
        formula: The computation as text, for display.

    Raises:
        UnknownOptionError: The constructor passes only some of its arguments, or an invalid value.

    Examples:
        >>> from mithril_nb.models import Linear, Relu
        >>> class Half(Composite):
        ...     dimension: int
        ...
        ...     def compose(self):
        ...         self += Linear(self.dimension)
        ...         self += Relu()
        >>> Half(8).dimension, Half(8).graph.nodes[1].name
        (8, 'relu_0')
    """

    category: ClassVar[str] = ""
    formula: ClassVar[str] = ""
    if TYPE_CHECKING:  # see `Operator`
        name: str | None = keyword_field(default=None)

    def __init__(self, name: str | None = None, **attributes: Any):
        super().__init__(name)
        if attributes:
            self._attributes = passed_on(type(self), attributes)
        self.compose()

    def compose(self) -> None:
        """Add the inner blocks."""

    def _without_fields(self, name: str | None = None):
        Composite.__init__(self, name)

    def __init_subclass__(cls, **settings: Any):
        super().__init_subclass__(**settings)
        if cls.__name__.startswith("_"):
            return  # a private base class is not a kind of block
        if cls.__init__ is Composite.__init__ and "compose" in cls.__dict__:
            cls.__init__ = Composite._without_fields  # pyright: ignore
        refuse_second(cls, "kind", cls.__name__, KINDS.get(cls.__name__))
        KINDS[cls.__name__] = cls
