"""Composite blocks with their own kind."""

from __future__ import annotations

from typing import Any, ClassVar

from mithril_nb.models.fields import passed_on
from mithril_nb.models.model import Model
from mithril_nb.models.registry import KINDS, refuse_second


class Composite(Model):
    """Base of the blocks that are built from other blocks. A subclass adds these blocks in its constructor.

    A constructor whose arguments are all numbers, strings or other plain data passes all of them to
    `super().__init__`. The workbench and saved files then rebuild the block from these arguments. A constructor that
    takes blocks passes only `name`, and saved files store the inner blocks.

    Attributes:
        category: The section of the workbench's palette that shows the block; `""` if its constructor takes blocks.
        formula: The computation as text, for display.

    Raises:
        UnknownOptionError: The constructor passes only some of its arguments, or an invalid value.

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
            self._attributes = passed_on(type(self), attributes)

    def __init_subclass__(cls, **settings: Any):
        super().__init_subclass__(**settings)
        if cls.__name__.startswith("_"):
            return  # a private base class is not a kind of block
        refuse_second(cls, "kind", cls.__name__, KINDS.get(cls.__name__))
        KINDS[cls.__name__] = cls
