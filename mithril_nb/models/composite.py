"""Blocks that are made of blocks, under a name of their own."""

from __future__ import annotations

from typing import Any, ClassVar

from mithril_nb.models.fields import check_passed_on, checked, fields_of
from mithril_nb.models.model import Model
from mithril_nb.models.registry import KINDS, refuse_second


class Composite(Model):
    """A block that is made of others: a subclass composes itself in its constructor.

    A constructor whose arguments are plain data passes all of them to `super().__init__`, so that the block can be
    built again from them, by the inspector's sliders and from a file. A constructor that takes blocks passes none:
    what is inside is then saved unchanged.

    Attributes:
        category: Where the palette lists it; `""` for one that needs blocks to be made of.
        formula: What it computes, for the reader.

    Raises:
        UnknownOptionError: The constructor passes some of its arguments and not all, or a value that does not fit.

    Examples:
        >>> from mithril_nb.models import Linear, Relu
        >>> class Half(Composite):
        ...     def __init__(self, dimension: int, name: str | None = None):
        ...         super().__init__(name, dimension=dimension)
        ...         self += Linear(self.options["dimension"])
        ...         self += Relu()
        >>> Half(8).options["dimension"], Half(8).graph.nodes[1].name
        (8, 'relu_0')
    """

    category: ClassVar[str] = ""
    formula: ClassVar[str] = ""

    def __init__(self, name: str | None = None, **attributes: Any):
        super().__init__(name)
        if attributes:
            kind, fields = type(self).__name__, fields_of(type(self))
            check_passed_on(kind, fields, attributes)
            self._attributes = checked(kind, fields, attributes)

    def __init_subclass__(cls, **settings: Any):
        super().__init_subclass__(**settings)
        if cls.__name__.startswith("_"):
            return  # what some blocks have in common is no kind of block
        refuse_second(cls, "kind", cls.__name__, KINDS.get(cls.__name__))
        KINDS[cls.__name__] = cls
