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

PROGRAM_SUFFIXES = (".mlir", ".stablehlo", ".hlo", ".txt", ".pb", ".bin")
"""Suffixes of files of StableHLO, of HLO, or of an exported program; the content of a file decides how it is read."""

Role = Literal["forward", "backward", "update"]
ROLES: tuple[Role, ...] = ("forward", "backward", "update")
"""The roles in the order of a training step."""
Origin = Literal["tagged", "inferred", "kernel"]
Param = None | bool | int | float | str | tuple["Param", ...]
"""A param of an equation as plain data."""
Range = tuple[int, int | None, int, int | None]
"""First line and column of an expression, its last line, and the column after its end.

Columns count bytes from 0; `None` if unknown.
"""
Constant = float | str | None
"""The value of an operand, as far as it is known without running the program; see `Equation.constants`."""
SIZE = "size "
"""Prefix of a constant that is a named size without a value: `"size 2*batch"`."""

LOSS = "(loss)"
"""Block path of the loss function."""
OPTIMIZER = "(optimizer)"
"""Block path of optimizer work that belongs to no single block, such as counting steps."""
UNATTRIBUTED = ""
"""Block path of work that no block caused, or whose block is unknown."""

Record = TypeVar("Record")
_NOTHING: frozenset[str] = frozenset()
Traced = Iterable[tuple[str, tuple[str, ...]]]
"""Id and equation ids of each instruction of a stage, in order: all that `link_instructions` needs."""


def quick_to_make(cls: type[Record]) -> type[Record]:
    """Make a frozen dataclass write its values directly into its `__dict__`; nothing else about it changes.

    The generated `__init__` of a frozen dataclass calls `object.__setattr__` for each field, which takes three times as
    long. The new one is also generated from source text, so that Python checks the arguments and raises its usual
    errors.

    Args:
        cls: A frozen dataclass whose `__init__` takes every field, and which has neither slots, nor `__post_init__`,
            nor fields with a `default_factory`.

    Returns:
        The same class.

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
    names = [field.name for field in fields(cls)]  # pyright: ignore[reportArgumentType]
    # If keys are always assigned in this order, Python stores them once for all instances of the class.
    lines = "".join(f"    __values__[{name!r}] = {name}\n" for name in names)
    space: dict[str, Callable[..., None]] = {}
    exec(f"def __init__(self, {', '.join(names)}):\n    __values__ = self.__dict__\n{lines}", space)
    plain: Any = cls.__init__
    quick: Any = update_wrapper(space["__init__"], plain)
    quick.__defaults__ = plain.__defaults__
    cls.__init__ = quick
    return cls


@quick_to_make
@dataclass(frozen=True)
class Equation:
    """One equation of the jaxpr: the unit to which every later instruction is traced back.

    Attributes:
        id: Path of the equation: `"12"` at the top, `"12.b1.3"` for equation 3 of body 1 in the params of equation 12,
            `"12.3"` if equation 12 has a single body.
        primitive: Name of the JAX primitive.
        block: Path of the block that caused it, `"(loss)"`, `"(optimizer)"`, or `""`.
        role: The part of a step it belongs to; `None` if unknown.
        inputs: Specs of its operands.
        outputs: Specs of its results.
        source: The user's line of Python that caused it, as `"file.py:12"`, or `""` if there is none.
        repeats: Number of times it runs per run of the program: the product of the enclosing trip counts. `None` if
            unknown.
        is_call: True if it only calls nested jaxprs, whose equations are listed (and counted) separately.
        params: Pairs of name and value of its params that are plain data; nested jaxprs and functions are left out.
        is_used: True if anything needs its results. JAX drops unused equations when it lowers.
        constants: One entry per operand. A number if the operand has the same known value everywhere; `"?"` if it is
            such a constant but its value is not computed or makes no difference; a string that starts with `SIZE` if
            it is a named size without a value; else `None`.
        origin: `"tagged"` if its block comes from the enclosing scopes or the functions that made it, `"inferred"` if
            it comes from the data flow, else `None`.
        transforms: Transforms around it, the outermost first: `"vmap"`, `"remat"`, `"scan"`, `"while"`, `"cond"`,
            `"custom_jvp"`, `"custom_vjp"`, `"shard_map"`.
        library_source: Line of the library code that the user's line called and that made the equation, as
            `"optax/_src/transform.py:12"`, or `""`.
        source_range: Range of the user's expression, which starts on the line of `source`; `None` if unknown.
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
    def place(self) -> str:
        """`source`, with the last line for an expression of several lines: `"file.py:12-14"`."""
        if self.source_range is None or self.source_range[2] <= self.source_range[0]:
            return self.source
        return f"{self.source}-{self.source_range[2]}"

    @property
    def param(self) -> Mapping[str, Param]:
        """The params as a dict."""
        return dict(self.params)


@quick_to_make
@dataclass(frozen=True)
class Instruction:
    """One instruction of a stage, with its line in the text.

    Attributes:
        id: Unique in its stage: an equation id in the jaxpr, a name such as `dot.3` in HLO.
        opcode: The operation, as its stage names it.
        line: Line in `Stage.text` on which it starts, counted from 1.
        equations: Ids of the equations that it came from.
        shares: Pairs of block path and share, the largest share first. The shares sum to 1; empty if unattributed.
        role: The part of a step that most of its work belongs to; a fusion may have equations of other parts.
        origin: `"tagged"` if the compiler preserved the link, `"inferred"` if it comes from operands or users,
            `"kernel"` if it covers everything its kernel runs, as for each line of LLVM IR and machine code;
            `None` if unattributed.
        lines: Number of its lines, regions included.
        operands: Its operands in the order of the text: ids of instructions of the same stage where they exist.
        shapes: Specs of its results.
        attributes: Pairs of name and value, as the stage prints them.
        transforms: Transforms around it, the outermost first: `"vmap"`, `"remat"`, `"scan"`, ...
        source: The user's lines of Python that caused it, as `"file.py:12"`, or `"file.py:12-14"` for an expression
            of several lines.
        library_source: Lines of library code that these lines called, as `"optax/_src/transform.py:12"`.
        picks: For each operand, its index among the results of the instruction that computes it; `()` if all are 0.
        results: For a loop or conditional in the jaxpr, the ids of the instructions inside that compute its results,
            branch after branch; `""` for a result that nothing inside computes.
        carried: Ids of the instructions whose results it uses in the next round of a loop.
    """

    id: str
    opcode: str
    line: int
    equations: tuple[str, ...] = ()
    shares: tuple[tuple[str, float], ...] = ()
    role: Role | None = None
    origin: Origin | None = None
    lines: int = 1
    operands: tuple[str, ...] = ()
    shapes: tuple[TensorSpec, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    transforms: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    library_source: tuple[str, ...] = ()
    picks: tuple[int, ...] = ()
    results: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()

    @property
    def blocks(self) -> MappingProxyType[str, float]:
        """A read-only mapping from block path to the share of the block in this instruction."""
        return MappingProxyType(dict(self.shares))


@dataclass(frozen=True)
class Stage(Shown):
    """One representation of a program between Python and machine code.

    Attributes:
        name: `"jaxpr"`, `"stablehlo"`, `"hlo"`, ...
        text: The text, one instruction a line where the stage allows; `""` if the stage is missing.
        instructions: The instructions, in the order of their lines.
        elapsed_s: Seconds that the stage took to compute from the previous stage.
        unavailable: The reason why the stage is missing, or ends at the line where tracing failed; else `None`.
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
            read: Computes the text and the instructions.
            traced: Returns ids and equations of the instructions; `None` if they can only be read from the text.
            elapsed_s: Seconds that the stage took to compute from the previous stage.
        """
        stage = cls(name, "", (), elapsed_s)
        # Without these entries, reading either attribute calls `__getattr__`, which computes both.
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
        # The functions that compute the text cannot be pickled, so a copy contains the text.
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @property
    def traced(self) -> Traced:
        """Id and equation ids of each instruction, in order; does not compute the text."""
        if "_traced" in self.__dict__ and "instructions" not in self.__dict__:
            with paused_collector():
                found = self.__dict__["_traced"]()
            if found is not None:
                return found
        return zip(column_of(self.instructions, "id"), column_of(self.instructions, "equations"), strict=True)

    def __str__(self) -> str:
        return self.text if self.unavailable is None else f"{self.name} is not available: {self.unavailable}"


# Without a class attribute, `__getattr__` is called until the instructions are computed.
del Stage.instructions


def column_of(instructions: Sequence[Instruction], name: str) -> list[Any]:
    """Return an attribute of each instruction, without creating the `Instruction` objects of kernels."""
    column = getattr(instructions, "column", None)
    return list(map(attrgetter(name), instructions)) if column is None else column(name)


def shared_by_kernel(instructions: Sequence[Instruction], name: str) -> list[tuple[Any, int]] | None:
    """Return pairs of an attribute and the number of instructions that share it, one for each kernel.

    `None` if the instructions are not those of kernels. A program of 10,000 blocks may have 20 kernels with 300,000
    instructions.
    """
    shared = getattr(instructions, "shared", None)
    return None if shared is None else shared(name)


Read = tuple[str, tuple[Instruction, ...]]
"""The text of a stage and its instructions."""


@dataclass(frozen=True)
class Input:
    """One input array of a program.

    Attributes:
        name: Python expression of the array: `params['linear_0.weight']`.
        spec: Shape and dtype of the array.
        block: Path of the block of the array, or `""`.
        is_param: True for a parameter of the model, False for data and for the state of an optimizer; `None` if
            unknown, because no argument is called `params` and none was named as the holder of the parameters.
        used_by: Blocks that use it, if it is a parameter that these blocks share and that belongs to no single block.
        argument: Name of the argument that contains the array: `params`.
        is_moved: True if XLA's partitioner may move it to other devices, because it is also a result with another
            sharding.
    """

    name: str
    spec: TensorSpec
    block: str
    is_param: bool | None
    used_by: tuple[str, ...] = ()
    argument: str = ""
    is_moved: bool = False


@paused_collector()
def link_instructions(source: Stage, target: Stage) -> dict[str, frozenset[str]]:
    """Link the instructions of two stages that share an equation.

    Args:
        source: The stage to link from.
        target: The stage to link to.

    Returns:
        A dict from the id of each instruction of `source` to the ids of the linked instructions of `target`.
    """
    # Thousands of lines of a kernel have the same equations: look them up once and share their links.
    named: dict[tuple[str, ...], list[str]] = {}
    for name, equations in target.traced:
        named.setdefault(equations, []).append(name)
    groups: dict[tuple[str, ...], frozenset[str]] = {}
    several: dict[str, list[frozenset[str]]] = {}  # the groups of more than one equation
    while named:
        # Each list is released once its set exists, so that a large program is held only once.
        equations, names = named.popitem()
        group = groups[equations] = frozenset(names)
        for equation in equations if len(equations) > 1 else ():
            several.setdefault(equation, []).append(group)
    unions: dict[tuple[int, ...], frozenset[str]] = {}

    def near(equations: tuple[str, ...]) -> frozenset[str]:
        # `groups` keeps the sets alive, so their ids stay unique.
        every = {id(group): group for equation in equations for group in several.get(equation, ())}
        every |= {id(groups[one,]): groups[one,] for one in equations if (one,) in groups}
        which = tuple(sorted(every))
        if which not in unions:  # cached: the same groups give the same set
            unions[which] = _NOTHING.union(*every.values())
        return unions[which]

    known: dict[tuple[str, ...], frozenset[str]] = {}
    found: dict[str, frozenset[str]] = {}
    for name, equations in source.traced:
        if len(equations) == 1 and equations[0] not in several:  # nearly always
            found[name] = groups.get(equations, _NOTHING)
            continue
        if equations not in known:
            known[equations] = near(equations)
        found[name] = known[equations]
    return found


def format_lines(file: str, lines: Sequence[int]) -> str:
    """Return a label for the part of a file from the first to the last of some lines.

    Args:
        file: Label of the file: its name, or `cell [12]`.
        lines: Line numbers in ascending order.

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
    """Return the label of an instruction's source, given as `file:line` or `file:first-last`.

    Examples:
        >>> format_source("cell [12]:3"), format_source("net.py:3"), format_source("net.py:3-7"), format_source("model")
        ('cell [12], line 3', 'net.py:3', 'net.py:3-7', 'model')
    """
    file, first, last = lines_of_source(source)
    return format_lines(file, [first] if first == last else [first, last]) if file else source


def lines_of_source(source: str) -> tuple[str, int, int]:
    """Return the file, first line and last line of an instruction's source; `""` and 0 if it names no line.

    Examples:
        >>> lines_of_source("net.py:3-7"), lines_of_source("net.py:3"), lines_of_source("model")
        (('net.py', 3, 7), ('net.py', 3, 3), ('', 0, 0))
    """
    file, _, lines = source.rpartition(":")
    first, _, last = lines.partition("-")
    if not (file and first.isdigit() and (last or first).isdigit()):
        return "", 0, 0
    return file, int(first), int(last or first)
