"""A stage as data: its text, its instructions, and the origin of each.

Everything here can be printed, saved and compared without JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import update_wrapper
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from mithril_nb.display import Shown
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.once import Once, paused_collector

PROGRAM_SUFFIXES = (".mlir", ".stablehlo", ".hlo", ".txt", ".pb", ".bin", ".mlirbc", ".jax")
"""Suffixes of files that may contain StableHLO, HLO or an exported program. The format is read from the content."""

Role = Literal["forward", "backward", "update"]
ROLES: tuple[Role, ...] = ("forward", "backward", "update")
"""The roles in the order of a training step."""
Origin = Literal["tagged", "inferred", "kernel"]
Param = None | bool | int | float | str | tuple["Param", ...]
"""A param of an equation as plain data."""
Range = tuple[int, int | None, int, int | None]
"""Range of an expression: first line, first column, last line, and the column after the last character.

Lines count from 1. Columns count bytes from 0, and are `None` if unknown.
"""
Constant = float | str | None
"""A value in `Equation.constants`."""
SIZE = "size "
"""Prefix of a symbolic size in `Equation.constants`."""

Attributes = tuple[tuple[str, str], ...]
"""Attributes of an instruction as pairs of name and value."""
Shares = tuple[tuple[str, float], ...]
"""Pairs of the path of a block and its share in an instruction, the largest share first. Shares sum to 1."""

Ids = tuple[str, ...]
"""Ids of equations or instructions."""

LOSS = "(loss)"
"""Block path of the loss function."""
OPTIMIZER = "(optimizer)"
"""Block path of optimizer work that belongs to no single block, such as counting steps."""
UNATTRIBUTED = ""
"""Block path of work that belongs to no block, or to an unknown one."""

Record = TypeVar("Record")
Traced = Iterable[tuple[str, tuple[str, ...]]]
"""The id of each instruction of a stage with the ids of its equations, in the order of the text."""


def quick_to_make(cls: type[Record]) -> type[Record]:
    """Give a frozen dataclass an `__init__` that takes a third of the time, and return the class.

    Examples:
        >>> from dataclasses import dataclass
        >>> @quick_to_make
        ... @dataclass(frozen=True)
        ... class Point:
        ...     x: int
        ...     y: int = 0
        >>> Point(1, 2), Point(y=2, x=1) == Point(1, 2), Point(3)
        (Point(x=1, y=2), True, Point(x=3, y=0))
    """
    # The original calls `object.__setattr__` for each field; the new `__init__` writes the fields into `__dict__`.
    # The class must have no slots, no `__post_init__`, and only fields that `__init__` takes, without
    # `default_factory`.
    names = [field.name for field in fields(cls)]  # pyright: ignore[reportArgumentType]
    # Instances share one table of keys if their `__init__` always assigns the keys in the same order.
    lines = "".join(f"    __values__[{name!r}] = {name}\n" for name in names)
    space: dict[str, Callable[..., None]] = {}
    exec(f"def __init__(self, {', '.join(names)}):\n    __values__ = self.__dict__\n{lines}", space)
    plain: Any = cls.__init__
    quick: Any = update_wrapper(space["__init__"], plain)
    quick.__defaults__ = plain.__defaults__
    cls.__init__ = quick
    return cls


def quick_replace(record: Record, **changes: Any) -> Record:
    """Return a copy of a frozen dataclass with other values, like `dataclasses.replace` in a fifth of the time."""
    new = object.__new__(type(record))
    new.__dict__.update(record.__dict__, **changes)
    return new


@quick_to_make
@dataclass(frozen=True)
class Equation:
    """One equation of the jaxpr. Instructions of all later stages are linked to the equations they came from.

    Attributes:
        id: Position of the equation. `"12"` is equation 12 of the program. `"12.3"` is equation 3 of the jaxpr nested
            in equation 12. If several jaxprs are nested in equation 12, `"12.b1.3"` is equation 3 of the one with index
            1.
        primitive: Name of the JAX primitive.
        block: Path of the block that the equation belongs to. `"(loss)"` is the loss function, `"(optimizer)"` is work
            of the optimizer for no single block, and `""` means unknown.
        role: `"forward"`, `"backward"` or `"update"`; `None` if unknown.
        inputs: Specs of the operands.
        outputs: Specs of the results.
        source: The line of the user's Python that created the equation, as `"file.py:12"`; `""` if unknown.
        repeats: Number of times the equation runs when the program runs once: the product of the trip counts of the
            loops around it. `None` if unknown.
        is_call: True if the equation only runs nested jaxprs. Their equations are separate records.
        params: Name and value of each param of JAX's equation that is plain data, not a nested jaxpr or a function.
        is_used: False if no result of the equation is needed. JAX drops such equations when it lowers the program.
        constants: For each operand, its value if the inputs of the program do not affect it; else `None`. The value is
            a number if all elements are equal to it, `"size 2*batch"` for a symbolic size, or `"?"` if it was not
            computed.
        origin: Evidence for `block`: `"tagged"` if the block comes from named scopes or from the functions that created
            the equation, `"inferred"` if it comes from the data flow; `None` without a block.
        transforms: The transforms around the equation, the outermost first: `"vmap"`, `"remat"`, `"scan"`, `"while"`,
            `"cond"`, `"custom_jvp"`, `"custom_vjp"`, `"shard_map"`, `"pallas"`.
        library_source: If the line in `source` calls a library: the library's line that created the equation, as
            `"optax/_src/transform.py:12"`; else `""`.
        source_range: First line, first column, last line and end column of the expression that created the equation;
            `None` if unknown.
    """

    id: str
    primitive: str
    block: str
    role: Role | None
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    source: str = ""
    repeats: int | None = 1
    is_call: bool = False
    params: tuple[tuple[str, Param], ...] = ()
    origin: Origin | None = None
    is_used: bool = True
    constants: tuple[Constant, ...] = ()
    transforms: tuple[str, ...] = ()
    library_source: str = ""
    source_range: Range | None = None

    @property
    def source_lines(self) -> str:
        """Lines of the expression that created the equation: `"file.py:12"`, or `"file.py:12-14"` for several lines."""
        if self.source_range is None or self.source_range[2] <= self.source_range[0]:
            return self.source
        return f"{self.source}-{self.source_range[2]}"

    @property
    def param(self) -> Mapping[str, Param]:
        """The params as a dict."""
        return dict(self.params)

    @property
    def shares(self) -> Shares:
        """Its block with share 1, as in `Instruction.shares`; `()` if the block is unknown."""
        return ((self.block, 1.0),) if self.block else ()


@quick_to_make
@dataclass(frozen=True)
class Instruction:
    """One instruction of a stage, with its line in the text.

    Attributes:
        id: Unique in its stage: an equation id in the jaxpr, a name such as `dot.3` in HLO.
        opcode: The operation, as its stage names it: `dot_general` in the jaxpr, `dot` in HLO.
        line: Line in `Stage.text` on which the instruction starts, counted from 1.
        equations: Ids of the equations that the instruction came from.
        shares: Path and share of each block that the instruction does work for, the largest share first. A fusion of
            equal work for two blocks has `(("a", 0.5), ("b", 0.5))`. Shares sum to 1; `()` if no block is known.
        role: `"forward"`, `"backward"` or `"update"`: the role of most of its work. `None` if unknown.
        origin: Evidence for `shares`: `"tagged"` if the compiler preserved the link to the equations, `"inferred"` if
            the blocks come from operands or users. A line of LLVM IR or machine code has `"kernel"`, because it gets
            the blocks of the whole kernel. `None` without a block.
        lines: Number of lines of the instruction, including instructions inside it.
        operands: The operands in the order of the text. Each is the id of the instruction that computes it. If none
            does, as for a constant, it is the text of the operand.
        shapes: Specs of the results.
        attributes: Pairs of name and value, as the stage prints them.
        transforms: The transforms around the instruction, the outermost first: `"vmap"`, `"remat"`, `"scan"`, ...
        source: The lines of the user's Python that created it, as `"file.py:12"`, or `"file.py:12-14"` for an
            expression of several lines.
        library_source: Lines of libraries, called by the lines in `source`, that created it.
        picks: For each operand, its index among the results of the instruction that computes it; `()` if all are 0.
        results: For a loop, conditional or call: ids of the inner instructions that compute its results, branch after
            branch; `""` for a result that no inner instruction computes. `()` for other instructions.
        carried: If the instruction uses carries of a loop: ids of the instructions that compute their next values.
    """

    id: str
    opcode: str
    line: int
    equations: tuple[str, ...] = ()
    shares: Shares = ()
    role: Role | None = None
    origin: Origin | None = None
    lines: int = 1
    operands: tuple[str, ...] = ()
    shapes: tuple[TensorSpec, ...] = ()
    attributes: Attributes = ()
    transforms: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    library_source: tuple[str, ...] = ()
    picks: tuple[int, ...] = ()
    results: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()

    @property
    def blocks(self) -> MappingProxyType[str, float]:
        """`shares` as a read-only mapping from block path to share."""
        return MappingProxyType(dict(self.shares))


@dataclass(frozen=True)
class Stage(Shown):
    """One representation of a program between Python and machine code.

    Attributes:
        name: `"jaxpr"`, `"stablehlo"`, `"hlo"`, ...
        text: The text, mostly one instruction per line; `""` if the stage is not available.
        instructions: The instructions, in the order of their lines.
        elapsed_s: Seconds from the previous stage to this one.
        unavailable: The reason why the text is missing, or why it ends early because tracing failed; `None` if the
            stage is complete.
    """

    name: str
    text: str
    instructions: tuple[Instruction, ...] = field(repr=False, default=())
    elapsed_s: float = field(compare=False, default=0.0)
    unavailable: str | None = None

    @classmethod
    def shown_later(
        cls, name: str, read: Callable[[], Read], traced: Callable[[], Traced | None], elapsed_s: float
    ) -> Stage:
        """Return a stage whose text and instructions are computed on first use.

        Args:
            name: Name of the stage.
            read: A function that returns the text and the instructions.
            traced: A function that returns the attribute `traced` in less time, without the text; `None` if it cannot.
            elapsed_s: Seconds from the previous stage to this one.
        """
        stage = cls(name, "", (), elapsed_s)
        # With these entries removed, reading `text` or `instructions` calls `__getattr__`, which computes both.
        del stage.__dict__["text"], stage.__dict__["instructions"]
        stage.__dict__.update(_read=Once(read), _traced=traced)
        return stage

    def __getattr__(self, name: str) -> Any:
        if name not in ("text", "instructions") or "_read" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        with paused_collector():
            text, instructions = self.__dict__["_read"].get()
        self.__dict__.update(text=text, instructions=instructions)
        return self.__dict__[name]

    def __getstate__(self) -> dict[str, Any]:
        # The functions that compute the text cannot be pickled, so the text is computed first.
        return {attribute.name: getattr(self, attribute.name) for attribute in fields(self)}

    @property
    def traced(self) -> Traced:
        """The id of each instruction with the ids of its equations, computed without the text where possible."""
        if "_traced" in self.__dict__ and "instructions" not in self.__dict__:
            with paused_collector():
                traced = self.__dict__["_traced"]()
            if traced is not None:
                return traced
        return zip(column_of(self.instructions, "id"), column_of(self.instructions, "equations"), strict=True)

    def __str__(self) -> str:
        return self.text if self.unavailable is None else f"{self.name} is not available: {self.unavailable}"


# The dataclass stores the default as a class attribute, and while that exists, `__getattr__` is not called.
del Stage.instructions


def column_of(instructions: Sequence[Instruction], name: str) -> list[Any]:
    """Return the attribute `name` of each instruction."""
    # `KernelLines` returns it without creating the instructions.
    column = getattr(instructions, "column", None)
    return list(map(attrgetter(name), instructions)) if column is None else column(name)


def shared_by_kernel(instructions: Sequence[Instruction], name: str) -> list[tuple[Any, int]] | None:
    """Return the attribute `name` of each kernel's instructions, and their number; `None` if there are no kernels."""
    # Also return `None` if the instructions of a kernel differ in this attribute. This is faster than a loop over all
    # instructions: 20 kernels may have 300,000.
    shared = getattr(instructions, "shared", None)
    return None if shared is None else shared(name)


Read = tuple[str, tuple[Instruction, ...]]
"""The text of a stage and its instructions."""
ById = Mapping[str, Instruction]
"""The instructions of a stage by id."""


@dataclass(frozen=True)
class Input:
    """One input array of a program.

    Attributes:
        name: Python expression of the array: `params['linear_0.weight']`.
        spec: Shape and dtype of the array.
        block: Path of the block that the array belongs to. If blocks share a parameter, the deepest block that contains
            them all. `""` if there is none.
        is_param: True for a parameter of the model, False for data and for the state of an optimizer. `None` if
            unknown: no argument is called `params`, and the option `params=` names none.
        used_by: For a parameter whose `block` is `""`, the paths of the blocks that use it; else `()`.
        argument: Name of the argument that contains the array: `params`.
        is_moved: True if the program returns the array with another sharding, so that XLA may have to move it to
            other devices.
    """

    name: str
    spec: TensorSpec
    block: str
    is_param: bool | None
    used_by: tuple[str, ...] = ()
    argument: str = ""
    is_moved: bool = False

    @property
    def shares(self) -> Shares:
        """Its block with share 1, as in `Instruction.shares`; `()` if the block is unknown."""
        return ((self.block, 1.0),) if self.block else ()


@paused_collector()
def link_instructions(source: Stage, target: Stage) -> dict[str, frozenset[str]]:
    """Return a dict from the id of each instruction of `source` to the ids of the linked instructions of `target`."""
    # Two instructions are linked if they have an equation in common.
    # Thousands of lines of a kernel have the same equations, and share one set of links.
    groups: dict[tuple[str, ...], list[str]] = {}
    for id, equations in target.traced:
        groups.setdefault(equations, []).append(id)
    groups_of: dict[str, list[tuple[str, ...]]] = {}
    for equations in groups:
        for equation in equations:
            groups_of.setdefault(equation, []).append(equations)
    unions: dict[frozenset[tuple[str, ...]], frozenset[str]] = {}
    linked: dict[tuple[str, ...], frozenset[str]] = {}
    links: dict[str, frozenset[str]] = {}
    for id, equations in source.traced:
        if equations not in linked:
            shared = frozenset([group for equation in equations for group in groups_of.get(equation, ())])
            if shared not in unions:
                unions[shared] = frozenset([other for group in shared for other in groups[group]])
            linked[equations] = unions[shared]
        links[id] = linked[equations]
    return links


def format_lines(file: str, lines: Sequence[int]) -> str:
    """Return a label for the lines of a file, from the first to the last number in `lines`.

    `lines`: Line numbers in ascending order.

    Examples:
        >>> format_lines("net.py", [3]), format_lines("net.py", [3, 4, 7])
        ('net.py:3', 'net.py:3-7')
        >>> format_lines("cell [12]", [3]), format_lines("cell [12]", [3, 7])
        ('cell [12], line 3', 'cell [12], lines 3-7')
    """
    is_one = len(lines) == 1
    numbers = f"{lines[0]}" if is_one else f"{lines[0]}-{lines[-1]}"
    if file != "cell" and not file.startswith("cell ["):
        return f"{file}:{numbers}"
    return f"{file}, {'line' if is_one else 'lines'} {numbers}"


def format_source(source: str) -> str:
    """Return a label for a string in `Instruction.source`; a string without line numbers is returned unchanged.

    Examples:
        >>> format_source("cell [12]:3"), format_source("net.py:3"), format_source("net.py:3-7"), format_source("model")
        ('cell [12], line 3', 'net.py:3', 'net.py:3-7', 'model')
    """
    file, first, last = lines_of_source(source)
    return format_lines(file, [first] if first == last else [first, last]) if file else source


def lines_of_source(source: str) -> tuple[str, int, int]:
    """Split a string in `Instruction.source` into file, first line and last line; `("", 0, 0)` if it has no lines.

    Examples:
        >>> lines_of_source("net.py:3-7"), lines_of_source("net.py:3"), lines_of_source("model")
        (('net.py', 3, 7), ('net.py', 3, 3), ('', 0, 0))
    """
    file, _, lines = source.rpartition(":")
    first, _, last = lines.partition("-")
    if not (file and first.isdigit() and (last or first).isdigit()):
        return "", 0, 0
    return file, int(first), int(last or first)
