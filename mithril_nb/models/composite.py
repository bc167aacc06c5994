"""Composite blocks with their own kind."""

from __future__ import annotations

from typing import Any, ClassVar

from mithril_nb.models.fields import passed_on
from mithril_nb.models.model import Model
from mithril_nb.models.registry import KINDS, refuse_second


class Composite(Model):
    """A block built from other blocks: a subclass adds them in its constructor.

    A constructor whose arguments are plain data passes all of them to `super().__init__`. The inspector's sliders and
    files then rebuild the block from them. A constructor that takes blocks passes none: its inner blocks are saved
    instead.

    Attributes:
        category: Its section of the palette; `""` if its constructor takes blocks.
        formula: The computation, for display.

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
