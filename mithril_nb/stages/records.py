"""A stage as data: its text, its instructions, and the origin of each.

Everything here can be printed, saved and compared without JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal

from mithril_nb.display import Shown
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.fast_records import paused_collector, quick_to_make
from mithril_nb.stages.once import Once

PROGRAM_SUFFIXES = (".mlir", ".stablehlo", ".hlo", ".txt", ".pb", ".bin")
"""Suffixes of files of StableHLO, of HLO, or of an exported program; the content of a file decides how it is read."""

Role = Literal["forward", "backward", "update"]
ROLES: tuple[Role, ...] = ("forward", "backward", "update")
"""The roles in the order of a training step."""
Origin = Literal["tagged", "inferred", "kernel"]
Param = None | bool | int | float | str | tuple["Param", ...]
"""A param of an equation as plain data."""
Range = tuple[int, int | None, int, int | None]
"""First line and column of an expression, last line, and the column after it; columns are bytes from 0, if known."""
Constant = float | str | None
"""What is known about an operand without running the program."""
SIZE = "size "
"""Prefix of a constant that is a named size without a value: `"size 2*batch"`."""

LOSS = "(loss)"
"""Block path of the loss function."""
OPTIMIZER = "(optimizer)"
"""Block path of optimizer work that belongs to no single block, such as counting steps."""
UNATTRIBUTED = ""
"""Block path of work that no block caused, or whose block is unknown."""

Traced = Iterable[tuple[str, tuple[str, ...]]]
"""Id and equation ids of each instruction of a stage, in order; links need nothing else."""


@quick_to_make
@dataclass(frozen=True)
class Equation:
    """One equation of the jaxpr: the unit to which every later instruction is traced back.

    Attributes:
        id: Path to it: `"12"` at the top, `"12.b1.3"` for equation 3 of branch 1 in the params of equation 12.
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
        """The params as a mapping."""
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
        shares: Pairs of block path and share. The shares sum to 1; empty if unattributed.
        role: The part of a step that most of its work belongs to; the equations of a fusion list every part.
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

    @property
    def blocks(self) -> MappingProxyType[str, float]:
        """Share of each block in it."""
        return MappingProxyType(dict(self.shares))


@dataclass(frozen=True)
class Stage(Shown):
    """One representation of a program between Python and machine code.

    Attributes:
        name: `"jaxpr"`, `"stablehlo"`, `"hlo"`, ...
        text: The text, one instruction a line where the stage allows; `""` if unavailable.
        instructions: Its instructions, in the order of lines.
        elapsed_s: Seconds it took to compute from the previous stage.
        unavailable: The reason why it is missing, or `None`.
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
            name: Its name.
            read: Computes its text and its instructions.
            traced: Returns the ids and equations of those instructions without computing the text, or `None`.
            elapsed_s: Seconds it took to compute from the previous stage.
        """
        stage = cls(name, "", (), elapsed_s)
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
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @property
    def traced(self) -> Traced:
        """Id and equation ids of each instruction, in order; does not compute the text."""
        if "_traced" in self.__dict__ and "instructions" not in self.__dict__:
            with paused_collector():
                found = self.__dict__["_traced"]()
            if found is not None:
                return found
        return [(one.id, one.equations) for one in self.instructions]

    def __str__(self) -> str:
        return self.text if self.unavailable is None else f"{self.name} is not available: {self.unavailable}"


# Without a class attribute, `__getattr__` is called until the instructions are computed.
del Stage.instructions

Read = tuple[str, tuple[Instruction, ...]]
"""The text of a stage and its instructions."""


@dataclass(frozen=True)
class Input:
    """One input array of a program.

    Attributes:
        name: Python expression of the array: `params['linear_0.weight']`.
        spec: Its shape and dtype.
        block: Path of its block, or `""`.
        is_param: True for a parameter of the model, False for data and for the state of an optimizer; `None` if
            unknown, because no argument is called `params` and none was named as the holder of the parameters.
        used_by: Blocks that use it, if it is a parameter that these blocks share and that belongs to no single block.
        argument: Name of the argument that it is part of: `params`.
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
