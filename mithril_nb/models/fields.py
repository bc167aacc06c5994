"""The fields of a block, read from its constructor's signature.

The signature is the single source: it validates arguments, and the inspector builds sliders and menus from it.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    SupportsIndex,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.graph.records import Value
from mithril_nb.graph.spec import MOST_AXES

FieldType = Literal["int", "float", "bool", "choice", "ints", "text", "value"]


@dataclass(frozen=True)
class Range:
    """The valid range of a number, or of each number in a tuple. Used in the `Annotated` types of a signature.

    Attributes:
        least: The minimum.
        most: The maximum.
        length: The required length of a tuple; `None` for any length.
        sample: A valid value, which error messages show in their advice; `None` to choose one from the range. Needed if
            some values in the range are invalid with the defaults of the other arguments.
    """

    least: float
    most: float
    length: int | None = None
    sample: Value = None

    def admits(self, value: Value) -> bool:
        """Return whether a number is in the range; for a tuple, whether all its numbers are and its length fits."""
        numbers = value if isinstance(value, tuple) else (value,)
        return (not isinstance(value, tuple) or self.length in (None, len(value))) and all(
            isinstance(number, int | float) and self.least <= number <= self.most for number in numbers
        )


@dataclass(frozen=True)
class RangeByAxes:
    """The range of an argument, such as a window size, by the number of spatial axes of the block.

    Attributes:
        ranges: The range for one axis, for two and for three. The class attribute `axes` of a block selects one.
    """

    ranges: tuple[Range, ...]


@dataclass(frozen=True)
class Start:
    """The value of an argument when the user adds the block from the workbench's palette. Used in `Annotated` types.

    Needed if the default of the argument is `None`.
    """

    value: Value


@dataclass(frozen=True)
class Field:
    """One attribute of a block, described for the inspector.

    Attributes:
        name: Name of the constructor's argument.
        type: `"int"`, `"float"`, `"bool"`, `"choice"`, `"ints"` (a tuple of int), `"text"`, or `"value"` (any plain
            data, such as nested lists of numbers).
        default: Default of the argument; `None` also if there is no default.
        is_required: True if the argument has no default.
        is_optional: True if the type of the argument includes `None`.
        range: Valid range of an `"int"` or a `"float"`, or of each number of an `"ints"`; `None` if all are valid.
        choices: The valid values of a `"choice"`.
        doc: The description of the argument in the docstring.
        start: The value when the user adds the block from the palette; `None` for the default.
    """

    name: str
    type: FieldType
    default: Value = None
    is_required: bool = False
    is_optional: bool = False
    range: Range | None = None
    choices: tuple[str, ...] = ()
    doc: str = ""
    start: Value = None


# Not `None`, which is the default of many attributes.
_REQUIRED = object()
_ONE_NUMBER = r"; one number for (?:both|all)(?=\.)"


def keyword_field(*, default: Any = None, kw_only: Literal[True] = True) -> Any:
    """Declare a field that is passed by keyword, to type checkers."""


@dataclass_transform(field_specifiers=(keyword_field,))
class Declared:
    """Base of the classes whose annotated fields, as in a dataclass, are the arguments of their constructor.

    `name` is the last argument. The nearest `__init__` that a base defines itself receives `name` and all fields.
    """

    _fields: ClassVar[Mapping[str, tuple[Any, Any]]] = {}  # hint and default by name

    def __init_subclass__(cls, **settings: Any):
        super().__init_subclass__(**settings)
        own = {
            name: (hint, cls.__dict__.get(name, _REQUIRED))
            for name, hint in inspect.get_annotations(cls).items()
            if not (name.startswith("_") or "ClassVar" in str(hint))
        }
        # A constructor of its own takes over, as with dataclasses.
        if not own or "__init__" in cls.__dict__:
            return
        inherited = cls._fields
        if inherited:  # its hints name objects of the module that defines the base
            hints = get_type_hints(cls.__init__, include_extras=True)
            inherited = {name: (hints[name], default) for name, (_, default) in inherited.items()}
        # As in dataclasses, inherited fields come first. A class that declares all of them again chooses their order.
        fields = own if inherited.keys() <= own.keys() else {**inherited, **own}
        for name in own.keys() & cls.__dict__.keys():
            delattr(cls, name)  # as an attribute it would hide the connection or the value of that name
        base = next(kind for kind in cls.__mro__[1:] if "__init__" in kind.__dict__ and "_fields" not in kind.__dict__)
        # A real function, as `dataclasses` makes it: a `__signature__` alone would show `*args` in tracebacks, and
        # `get_type_hints` reads the names of annotations in the module of the function.
        code = (
            f"def bind(construct):\n def __init__(self, {', '.join(fields)}, name):\n"
            f"  construct(self, name, {', '.join(f'{name}={name}' for name in fields)})\n return __init__"
        )
        module = sys.modules.get(cls.__module__)
        scope: dict[str, Callable[..., Any]] = {}
        exec(code, vars(module) if module else {}, scope)
        init: Any = scope["bind"](base.__init__)
        init.__defaults__ = (*(default for _, default in fields.values() if default is not _REQUIRED), None)
        init.__annotations__ = {name: hint for name, (hint, _) in fields.items()} | {"name": "str | None"}
        init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
        cls.__init__, cls._fields = init, fields


@cache
def fields_of(constructor: type) -> tuple[Field, ...]:
    """Return the arguments of a block's constructor as fields, in the order of the signature.

    Omits `name`, and keyword-only arguments, because those of `MLP` take blocks and not plain data.

    Examples:
        >>> from mithril_nb.models import Linear
        >>> [field.name for field in fields_of(Linear)]
        ['dimension', 'use_bias', 'input_size']
    """
    hints = get_type_hints(constructor.__init__, include_extras=True)
    docs = _argument_docs(constructor.__doc__ or "")
    return tuple(
        _field(parameter, constructor, hints.get(parameter.name, Any), docs.get(parameter.name, ""))
        # The signature of the class itself is that of the metaclass, see `BlockMeta`.
        for parameter in list(inspect.signature(constructor.__init__).parameters.values())[1:]
        if parameter.name != "name" and parameter.kind is not parameter.KEYWORD_ONLY
    )


def checked(kind: str, fields: tuple[Field, ...], attributes: Mapping[str, Any]) -> tuple[tuple[str, Value], ...]:
    """Return pairs of name and value for all fields of a block, with values converted to the fields' types.

    A field that `attributes` omits has its default.
    """
    by_name = {field.name: field for field in fields}
    for name in attributes:
        if name not in by_name:
            raise UnknownOptionError(
                f"{kind} takes no argument {name!r}.",
                (("takes", ", ".join(by_name) or "none"),),
                _call(kind, fields),
            )
    values: list[tuple[str, Value]] = []
    for field in fields:
        value = attributes.get(field.name, field.default)
        if need := unmet_need(field, value):
            raise UnknownOptionError(
                f"{kind} cannot take {field.name}={short_repr(value)}.",
                # `_need` contains this remark already.
                (("needs", need), *(() if not field.doc else (("means", re.sub(_ONE_NUMBER, "", field.doc)),))),
                _call(kind, fields, field.name, attributes),
            )
        values.append((field.name, converted_value(field, value)))
    return tuple(values)


def passed_on(constructor: type, attributes: Mapping[str, Any]) -> tuple[tuple[str, Value], ...]:
    """Return the attributes of a block as pairs of name and value, like `checked`.

    `attributes` contains the arguments that the block's constructor passes to `super().__init__`: all its arguments.
    """
    kind, fields = constructor.__name__, fields_of(constructor)
    if lost := [field.name for field in fields if field.name not in attributes]:
        raise UnknownOptionError(
            f"{kind}.__init__ does not pass {', '.join(map(repr, lost))} to super().__init__.",
            (("because", f"{kind} is rebuilt from its attributes"), ("passed", ", ".join(attributes) or "nothing")),
            f"super().__init__(name, {', '.join(f'{name}={name}' for name in (*attributes, *lost))})",
        )
    return checked(kind, fields, attributes)


def unmet_need(field: Field, value: Any) -> str:
    """Return the requirement of a field as text if a value does not meet it; `""` if the value is valid.

    Examples:
        >>> from mithril_nb.models import Dropout
        >>> unmet_need(fields_of(Dropout)[0], 0.5), unmet_need(fields_of(Dropout)[0], "much")
        ('', 'a number from 0 to 0.99')
    """
    if value is None:
        fits = field.is_optional or (field.default is None and not field.is_required)
    else:
        fits = converted_value(field, value) is not None
    return "" if fits else _need(field)


def converted_value(field: Field, value: Any) -> Value:
    """Return a value in the type of a field; `None` if it does not fit."""
    if value is None:
        return None
    try:
        fitting = _converted(field, value)
    except (TypeError, ValueError, OverflowError):
        return None
    return fitting if field.range is None or field.range.admits(fitting) else None


def _call(kind: str, fields: tuple[Field, ...], subject: str = "", attributes: Mapping[str, Any] | None = None) -> str:
    """Return a valid constructor call as source code."""
    values: dict[str, Any] = {}
    for field in fields:
        value = (attributes or {}).get(field.name, field.default)
        is_short = len(short_repr(value)) < 80
        if field.name != subject and is_short and value != field.default and not unmet_need(field, value):
            values[field.name] = converted_value(field, value)
        elif field.is_required or field.start is not None or field.name == subject:
            values[field.name] = example(field)
    return f"{kind}({', '.join(f'{name}={value!r}' for name, value in values.items())})"


def _converted(field: Field, value: Any) -> Value:
    match field.type:
        case "int":
            # 2.0 is accepted as 2: arithmetic on widths often gives floats.
            if isinstance(value, bool) or int(value) != value:
                raise ValueError
            return int(value)
        case "float":
            if isinstance(value, bool):
                raise ValueError
            return float(value)
        case "bool":
            # NumPy's booleans equal Python's.
            if value not in (True, False):
                raise ValueError
            return bool(value)
        case "choice":
            if value not in field.choices:
                raise ValueError
            return str(value)
        case "ints":
            if isinstance(value, str):
                # A text field of the inspector sends "3, 3" or "(3, 3)".
                value = [part for part in re.split(r"[,\s]+", value.strip("()[] ")) if part]
            values = [value] if isinstance(value, SupportsIndex) else list(value)
            if any(
                isinstance(number, bool) or int(number) != (float(number) if isinstance(number, str) else number)
                for number in values
            ):
                raise ValueError
            count = field.range.length if field.range else None
            return tuple(int(number) for number in values) * (count if count and len(values) == 1 else 1)
        case "text":
            if not isinstance(value, str):
                raise TypeError
            return str(value)
        case "value":
            return plain(value)


def plain(value: Any, levels: int = MOST_AXES) -> Value:
    """Return a value as plain data: arrays and lists become tuples.

    Examples:
        >>> plain([[1, 2.5], "x"])
        ((1, 2.5), 'x')
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    # An array of NumPy, JAX or PyTorch, without an import of either.
    if hasattr(value, "tolist"):
        return plain(value.tolist(), levels)
    if isinstance(value, list | tuple):
        if not levels:
            raise ValueError(f"more than {MOST_AXES} levels of lists")
        return tuple(plain(entry, levels - 1) for entry in value)
    raise TypeError(type(value).__name__)


def is_constant(value: Any) -> bool:
    """Return whether a value is plain data other than a string and `None`: a number, or an array or list."""
    try:
        return plain(value) is not None and not isinstance(value, str)
    except (TypeError, ValueError):
        return False


def _need(field: Field) -> str:
    count = field.range.length if field.range else None
    words = {
        "int": "a whole number",
        "float": "a number",
        "bool": "True or False",
        "choice": "one of " + ", ".join(repr(choice) for choice in field.choices),
        "ints": f"{count} whole numbers" if count else "whole numbers",
        "text": "text",
        "value": f"one value, or lists nested at most {MOST_AXES} levels deep",
    }[field.type]
    if field.range is not None:
        least, most = _number(field.range.least), field.range.most
        each = "each " if field.type == "ints" else ""
        words += f", {each}{least} or more" if most == inf else f" from {least} to {_number(most)}"
    return words + (", or one for all" if count else "") + (", or None" if field.is_optional else "")


def _number(value: float) -> str:
    # `typing` caches annotations by equality, and Range(0, 9) equals Range(0.0, 9.0): an int may arrive as a float.
    return str(int(value)) if value % 1 == 0 else str(value)


def example(field: Field) -> Value:
    """Return a valid value of a field, for messages and examples."""
    limits = field.range
    for value in (field.start, field.default, limits and limits.sample):
        if value is not None:
            return value
    # For `min_val` of `Clamp`, a valid number depends on `max_val`.
    if field.type == "float" and limits is None and field.is_optional:
        return None  # a valid number may depend on other arguments
    candidates: dict[FieldType, tuple[Value, ...]] = {
        "int": (64, 1),
        "float": (0.1, 1.0),
        "bool": (True,),
        "choice": (*field.choices, ""),
        "ints": ((2,) * limits.length,) if limits and limits.length else ((64, 64), (0, 1)),
        "text": ("",),
        "value": (1,),
    }
    fitting = [value for value in candidates[field.type] if limits is None or limits.admits(value)]
    # No usual value is in the range, so its minimum is shown.
    return fitting[0] if fitting or limits is None else limits.least


def _field(parameter: inspect.Parameter, kind: Any, hint: Any, doc: str) -> Field:
    required = parameter.default is parameter.empty
    default = None if required else parameter.default
    notes: list[Any] = []
    optional = False
    while True:
        options = get_args(hint)
        if get_origin(hint) is Annotated:
            hint, *more = options
            # The last note of a kind counts: `Annotated[Many, Start(2)]` adds to the notes of `Many`.
            notes += [note.ranges[kind.axes - 1] if isinstance(note, RangeByAxes) else note for note in more]
        elif type(None) in options:
            optional = True
            (hint,) = (option for option in options if option is not type(None))
        else:
            break
    limits = next((note for note in reversed(notes) if isinstance(note, Range)), None)
    start = next((note.value for note in reversed(notes) if isinstance(note, Start)), None)
    if get_origin(hint) is Literal:
        return Field(parameter.name, "choice", default, required, optional, None, options, doc, start)
    types: dict[Any, FieldType] = {int: "int", float: "float", bool: "bool", str: "text", Any: "value"}
    value = tuple(default) if isinstance(default, list | tuple) else default
    return Field(parameter.name, types.get(hint, "ints"), value, required, optional, limits, (), doc, start)


def _argument_docs(doc: str) -> dict[str, str]:
    section = re.search(r"^ *Args:\n(.*?)(?:\n *\n|\Z)", inspect.cleandoc(doc), re.S | re.M)
    docs: dict[str, str] = {}
    name = ""
    for line in section.group(1).splitlines() if section else ():
        start = re.match(r" {4}(\w+): (.*)", line)
        if start:
            name = start.group(1)
            docs[name] = start.group(2).strip()
        elif name:
            docs[name] += " " + line.strip()
    return docs
