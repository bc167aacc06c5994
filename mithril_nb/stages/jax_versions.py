"""JAX internals that may change between releases: the form of equations, name stacks and source lines.

Tested with 0.10.2 and 0.12.0. The rest of `stages` and `cost` accesses JAX's objects only through these functions,
and the state of `jax.jit` only through `jax_jit`.
"""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial, reduce
from math import prod
from types import CodeType
from typing import Any, NamedTuple

import jax
import numpy as np
from jax._src.interpreters import mlir
from jax.extend import core

from mithril_nb.graph.spec import TensorSpec

NameStack = tuple[tuple[str, bool], ...]
"""Names of scopes and transforms, the outermost first. The second item is true for a transform, such as `jvp`."""

WRITTEN_OUT = frozenset({"custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"})
"""Primitives that JAX lowers to the ops of their nested jaxpr, without a call. The names of all JAX versions."""

CALL_NAMES = WRITTEN_OUT | {"jit", "pjit", "closed_call", "core_call", "remat2", "checkpoint"}
"""Primitives that run one nested jaxpr once on their own operands."""

REMATTED = "rematted_computation"
"""Scope of the operations that `jax.checkpoint` recomputes in the backward pass."""

REMAT_SCOPES = frozenset({REMATTED, "checkpoint"} if jax.__version_info__ >= (0, 11) else {REMATTED})
"""Scopes that `jax.checkpoint` adds to a jaxpr. JAX 0.10 has no scope for the call, so `checkpoint` is the user's."""

_TRANSFORMS = {
    "scan": "scan",
    "while": "while",
    "cond": "cond",
    "switch": "cond",
    "remat": "remat",
    "remat2": "remat",
    "checkpoint": "remat",
    "custom_jvp_call": "custom_jvp",
    "custom_vjp_call": "custom_vjp",
    "custom_vjp_call_jaxpr": "custom_vjp",
    "shard_map": "shard_map",
    "pallas_call": "pallas",
}

# Primitives whose nested jaxpr is not a part of the program: it combines two items, or computes a derivative.
_COMBINERS = frozenset("reduce reduce_window select_and_scatter reduce_scatter custom_root".split())

_JAXPRS = (core.Jaxpr, core.ClosedJaxpr)
_NO_NUMBERS = frozenset({np.dtype("complex64"), np.dtype("complex128"), jax.dtypes.float0})
_SOLVES = "custom_linear_solve"
# Folders of installed libraries: of this interpreter, of this user, and of JAX.
_LIBRARY = tuple(
    {
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        os.path.dirname(os.path.dirname(os.path.abspath(jax.__file__))),
        *site.getsitepackages(),
        site.getusersitepackages(),
    }
)
_INSTALLED = re.compile(r"^(.*[/\\](?:site|dist)-packages)[/\\]")
# Folder of the commands that libraries install, such as `mithril-nb` and `pytest`.
_SCRIPTS = sysconfig.get_path("scripts") + os.sep
_STANDARD = (*{sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}, _SCRIPTS, "<frozen ")
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def is_jaxpr(value: Any) -> bool:
    """Return whether a param of an equation is a jaxpr, open or closed."""
    return isinstance(value, _JAXPRS)


def open_jaxpr(value: Any) -> core.Jaxpr:
    """Return the jaxpr without its constants."""
    return value.jaxpr if isinstance(value, core.ClosedJaxpr) else value


def map_bodies(equation: Any, rewrite: Callable[[str, Any], Any]) -> dict[str, Any] | None:
    """Return the params of an equation with its nested jaxprs replaced; `None` if it has none."""
    # `rewrite` takes a prefix and a nested jaxpr, and returns the new jaxpr. The prefix is `""` if the equation has
    # one nested jaxpr, else `"b0."`, `"b1."`, ... in the order of the params.
    positions = [where for where, _ in _nested_jaxprs(equation)]
    if not positions:
        return None
    prefixes = {where: f"b{k}." if len(positions) > 1 else "" for k, where in enumerate(positions)}
    params = dict(equation.params)
    for (key, index), prefix in prefixes.items():
        value = params[key]
        if index is None:
            params[key] = rewrite(prefix, value)
        else:
            items = list(value)
            items[index] = rewrite(prefix, items[index])
            # The four jaxprs of a linear solve are a named tuple, the branches of a `cond` a plain one.
            params[key] = type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return params


def bodies(equation: Any) -> list[tuple[str, Any]]:
    """Return the nested jaxprs that run when the equation runs, each with its prefix; see `map_bodies`."""
    entries = _nested_jaxprs(equation)
    return [(f"b{k}." if len(entries) > 1 else "", jaxpr) for k, (_, jaxpr) in enumerate(entries)] if entries else []


def _nested_jaxprs(equation: Any) -> list[tuple[tuple[str, int | None], Any]]:
    entries: list[tuple[tuple[str, int | None], Any]] = []
    for key, value in equation.params.items():
        if isinstance(value, _JAXPRS):
            entries.append(((key, None), value))
        elif isinstance(value, (tuple, list)):
            entries += [((key, index), item) for index, item in enumerate(value) if isinstance(item, _JAXPRS)]
    name = equation.primitive.name
    if not entries or name in _COMBINERS or name.startswith("scatter"):  # the usual case
        return []
    if name == _SOLVES:
        # A linear solve has four jaxprs: `solve` runs, the others are for its derivatives.
        return [(where, jaxpr) for where, jaxpr in entries if _is_solve(equation.params[where[0]], where[1])]
    return entries


def _is_solve(value: Any, index: int | None) -> bool:
    return index is None or getattr(value, "_fields", ())[index : index + 1] == ("solve",)


def trip_count(equation: Any) -> int | None:
    """Return how often the nested jaxprs of an equation run when it runs once; `None` if this is unknown."""
    # It is unknown for a `while`, and for a scan whose length is a named size without a value.
    name = equation.primitive.name
    if name == "scan":
        length = equation.params["length"]
        return int(length) if isinstance(length, (int, np.integer)) else None
    # The last two are loops of Pallas.
    return None if name in ("while", "emit_pipeline", "parallel_loop") else 1


def mapped_devices(shard_map: Any) -> int:
    """Return the number of devices that each run the body of a `shard_map`: the product of its manual axes."""
    sizes, axes = shard_map.params["mesh"].shape, shard_map.params.get("newly_manual_axes")
    return prod(int(size) for name, size in sizes.items() if axes is None or name in axes)


class While(NamedTuple):
    """The jaxprs of a `while` and their numbers of constants. Its operands are these constants, then the carry."""

    condition: Any
    body: Any
    condition_constants: int
    body_constants: int


def while_parts(equation: Any) -> While | None:
    """Return the jaxprs of a `while`; `None` for another primitive."""
    if equation.primitive.name != "while":
        return None
    condition, body = (open_jaxpr(equation.params[key]) for key in ("cond_jaxpr", "body_jaxpr"))
    carried = len(equation.outvars)
    return While(condition, body, len(condition.invars) - carried, len(body.invars) - carried)


def size_as_value(equation: Any) -> str | None:
    """Return the named size that a `dim_as_value` equation turns into an array, as text; `None` for other equations."""
    return str(equation.params["dim"]) if equation.primitive.name == "dim_as_value" else None


def names_of_sizes(shapes: Iterable[Sequence[Any]]) -> tuple[str, ...]:
    """Return the names of the symbolic sizes in some shapes, sorted."""
    # Parses the public text form of JAX: "2*batch + floordiv(time, 2)".
    texts = [str(dim) for shape in shapes for dim in shape if jax.export.is_symbolic_dim(dim)]
    return tuple(sorted({name for text in texts for name in re.findall(r"[^\W\d]\w*\b(?!\()", text)}))


def carried(equation: Any) -> int:
    """Return the number of arrays in the carry of a scan, which come first among its results."""
    if "num_carry" in equation.params:
        return int(equation.params["num_carry"])
    return len(equation.params["ft_out"].unpack()[0])  # JAX 0.12 stores trees instead of counts


def is_condition(loop: Any, body: Any) -> bool:
    """Return whether a nested jaxpr of a `while` is its condition instead of its body."""
    return open_jaxpr(loop.params["cond_jaxpr"]) is body


def name_stack(equation: Any) -> NameStack:
    """Return the scopes and transforms around an equation, relative to its jaxpr."""
    stack = equation.source_info.name_stack.stack
    return _read_stack(stack, tuple(map(type, stack)))


def kept_inputs(lowered: jax.stages.Lowered) -> list[int] | None:
    """Return the indices of the inputs that a lowered program kept; JAX removes unused ones."""
    # `None` if unknown.
    # JAX has no public name for it. A program that was not lowered by `jax.jit` has none.
    indices = getattr(getattr(lowered, "_lowering", None), "compile_args", {}).get("kept_var_idx")
    return None if indices is None else sorted(indices)


@lru_cache(maxsize=8192)
def _read_stack(stack: tuple[Any, ...], kinds: tuple[type, ...]) -> NameStack:
    # JAX does not export its classes `Scope` and `Transform`, but both are named tuples with a `name`. Of one name they
    # are equal, so the cache needs their types: a scope "jvp" is no gradient.
    return tuple((element.name, kind.__name__ == "Transform") for element, kind in zip(stack, kinds, strict=True))


@lru_cache(maxsize=8192)
def transforms_of(stack: NameStack) -> tuple[str, ...]:
    """Return the transforms `"vmap"` and `"remat"` in a name stack."""
    # `transform_of` returns the other transforms.
    names = []
    for name, is_transform in stack:
        if is_transform and name == "vmap":
            names.append("vmap")
        elif not is_transform and name in REMAT_SCOPES and names[-1:] != ["remat"]:
            # In the backward pass, one `jax.checkpoint` opens two scopes: for the call and for the recomputation.
            names.append("remat")
    return tuple(names)


def transform_of(primitive: str) -> tuple[str, ...]:
    """Return the transform that a primitive with a nested jaxpr represents: `("cond",)` for `switch`; `()` if none."""
    name = _TRANSFORMS.get(primitive)
    return () if name is None else (name,)


def is_lowered_by_jax(primitive: str) -> bool:
    """Return whether JAX lowers the equations nested in a primitive one by one."""
    # Other packages may do anything.
    return primitive in CALL_NAMES or primitive in _TRANSFORMS or primitive == _SOLVES


def with_scope(equation: Any, scope: str, params: dict[str, Any] | None) -> Any:
    """Return the equation with one more scope around it, and with other params unless `params` is `None`."""
    info = equation.source_info
    changes = {} if params is None else {"params": params}
    # A Pallas kernel is lowered for the GPU of its context, see `lowering_for`.
    if equation.primitive.name == "pallas_call" and jax.sharding.get_abstract_mesh().abstract_device is not None:
        changes["ctx"] = type(equation.ctx)()
    return equation.replace(source_info=info.replace(name_stack=info.name_stack.extend(scope)), **changes)


def lowering_for(platform: str, kind: str) -> AbstractContextManager[Any]:
    """Return a context for `with_scope` in which Pallas kernels are for a GPU that the machine does not have."""
    # JAX 0.10.2 has another compiler for these kernels, which needs a library of the GPU.
    if platform != "cuda" or jax.__version_info__ < (0, 12):
        return nullcontext()
    device: Any = jax.sharding.AbstractDevice(kind, None, "gpu")
    return jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=device))


def frames(traceback: Any) -> Sequence[CodeType]:
    """Return the code objects of the Python stack that created an equation, the innermost frame first."""
    return () if traceback is None else traceback.raw_frames()[0]


def frames_and_offsets(traceback: Any) -> tuple[Sequence[CodeType], Sequence[int]]:
    """Return the code of each Python frame, the innermost first, and the offset of its instruction in bytes."""
    return traceback.raw_frames()


@lru_cache(maxsize=8192)
def library_of(file: str) -> str | None:
    """Return the name of the library that contains a Python file, or `None` if it is the user's file."""
    # This package and Python itself are libraries too.
    if file.startswith(_OURS):
        return "mithril_nb"
    # A saved program may name files of another Python environment, whose folders are not in `_LIBRARY`.
    installed = _INSTALLED.match(file)
    for folder in (*_LIBRARY, *((installed.group(1),) if installed else ())):
        if file.startswith(folder + os.sep):
            return file[len(folder) + 1 :].split(os.sep)[0].removesuffix(".py")
    return "python" if file.startswith(_STANDARD) else None


def start_of(jaxpr: Any) -> str:
    """Return `"file.py:12"`, the start of the function that a jaxpr was traced from, or `""` if unknown."""
    debug = getattr(jaxpr, "debug_info", None)
    return getattr(debug, "func_src_info", "").partition(" at ")[2]


def library_label(path: str) -> str:
    """Return the path of a library file, starting with the name of the library; for other files, only their name.

    Examples:
        >>> library_label(jax.nn.__file__)
        'jax/nn/__init__.py'
    """
    parts = path.replace(os.sep, "/").split("/")
    library = library_of(path)
    return "/".join(parts[parts.index(library) :]) if library in parts else parts[-1]


def file_label(path: str) -> str:
    """Return the label of a Python file: its name, or `cell [12]` for a notebook cell; `cell` if it has no number."""
    # The number is the execution count of the cell, which is stable if a notebook runs from its start.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    # IPython compiles each cell under a generated file name, and keeps its execution count here.
    cells = getattr(getattr(shell, "compile", None), "_filename_map", {})
    if path not in cells:
        return os.path.basename(path)
    return f"cell [{cells[path]}]" if cells[path] else "cell"


def file_labels(paths: Iterable[str]) -> dict[str, str]:
    """Return a label for each file; files of the same name get as many parent folders as needed.

    Examples:
        >>> list(file_labels(["/a/x/m.py", "/b/x/m.py", "/c/x/m.py", "/c/n.py"]).values())
        ['m.py', 'x/m.py', 'c/x/m.py', 'n.py']
    """
    labels: dict[str, str] = {}
    used: set[str] = set()
    for path in dict.fromkeys(paths):
        label, folder = file_label(path), os.path.dirname(path)
        while label in used and os.path.basename(folder):
            label, folder = f"{os.path.basename(folder)}/{label}", os.path.dirname(folder)
        labels[path] = label
        used.add(label)
    return labels


def is_literal(atom: Any) -> bool:
    """Return whether an operand is a constant written into the equation."""
    return isinstance(atom, core.Literal)


def variables(atoms: Iterable[Any]) -> tuple[Any, ...]:
    """Return the operands that are not literals."""
    return tuple([atom for atom in atoms if not isinstance(atom, core.Literal)])  # a generator takes a third longer


def has_effects(equation: Any) -> bool:
    """Return whether an equation has effects, so that JAX keeps it even if its results are unused."""
    # This effect only names an axis, as in a collective. JAX drops such equations, but does not export the class.
    return any(type(effect).__name__ != "NamedAxisEffect" for effect in equation.effects)


def is_number(value: Any) -> bool:
    """Return whether the value of a literal is a single real number."""
    return getattr(value, "shape", ()) == () and getattr(value, "dtype", None) not in _NO_NUMBERS


def is_dropped(var: Any) -> bool:
    """Return whether a result of an equation is unused."""
    return isinstance(var, core.DropVar)


# Primitives and functions that are new in JAX 0.12, written with older primitives.
_EXPANSIONS: dict[str, Callable[..., Any]] = {
    "polynomial": lambda x, *c: jax.numpy.broadcast_arrays(
        reduce(lambda total, coefficient: total * x + coefficient, c[::-1]), x
    )[0],
    "one_minus_square": lambda x: (1 + x) * (1 - x),
    "log2": lambda x: jax.lax.log(x) * 1.4426950408889634,
    "exp_neg_sq": lambda x: jax.lax.exp(-(x * x)),  # JAX splits x by its bits, for another half bit of precision
}


def expansion(equation: Any) -> Any | None:
    """Return the closed jaxpr that replaces a new primitive of JAX 0.12 by older ones; `None` for other equations."""
    name, operands = equation.primitive.name, [atom.aval for atom in equation.invars]
    if name == "custom_jvp_call":
        info = open_jaxpr(equation.params["call_jaxpr"]).debug_info
        name = re.sub(r" at .*jax._src.lax.*", "", str(info.func_src_info))
    if name not in ("call_hi_primitive", *_EXPANSIONS):
        return None
    wide = any(spec_of(aval).dtype.endswith(("64", "128")) for aval in operands)
    with jax.enable_x64(True) if wide else nullcontext():  # else JAX reads 64 bits as 32
        if name in _EXPANSIONS:
            return jax.make_jaxpr(_EXPANSIONS[name])(
                *[jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in operands]
            )
        high = equation.params["_prim"]
        return jax.make_jaxpr(high.expand)(*jax.tree.unflatten(high.in_tree, high.in_avals_flat))


@lru_cache(maxsize=1024)
def _lowered_function(primitive: Any) -> Any | None:
    entry = mlir._lowerings.get(primitive)  # pyright: ignore[reportPrivateUsage]
    rule: Any = getattr(entry, "rule", entry)
    # `mlir.lower_fun(fun)` returns a closure over `fun`, which JAX traces when it lowers the equation.
    names: tuple[str, ...] = getattr(getattr(rule, "__code__", None), "co_freevars", ())
    if not {"fun", "multiple_results"} <= {*names}:
        return None
    fun = dict(zip(names, rule.__closure__, strict=True))["fun"].cell_contents
    is_jax = getattr(getattr(fun, "func", fun), "__module__", "jax._src").startswith("jax._src")
    return None if is_jax else fun


def lowered_function(equation: Any) -> Any | None:
    """Return the closed jaxpr that a primitive of another package lowers to; `None` if it is unknown."""
    # Examples are `bcoo_dot_general` of JAX's sparse arrays, and primitives of Equinox and Lineax.
    fun = _lowered_function(equation.primitive)
    if fun is None:
        return None
    specs = [jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in equation.invars]
    try:
        return jax.make_jaxpr(partial(fun, **equation.params))(*specs)
    except Exception:  # code of another package, which may need what only its lowering has
        return None


def spec_of(aval: Any) -> TensorSpec:
    """Return shape and dtype of an abstract value."""
    # A token, which has neither, gets `()` and `"token"`.
    try:
        return _spec(aval.shape, aval.dtype)
    except (AttributeError, TypeError):
        return TensorSpec((), "token")


def specs_of(atoms: Sequence[Any]) -> tuple[TensorSpec, ...]:
    """Return the shapes and dtypes of operands or results."""
    try:
        # Fast path for arrays.
        return tuple([_spec(atom.aval.shape, atom.aval.dtype) for atom in atoms])
    except (AttributeError, TypeError):
        return tuple([spec_of(atom.aval) for atom in atoms])


@lru_cache(maxsize=8192)
def _spec(shape: tuple[Any, ...], dtype: Any) -> TensorSpec:
    # Use the text of a symbolic dim: in JAX, dims of two symbolic scopes are never equal.
    sizes = tuple(dim if isinstance(dim, int) else str(dim) for dim in shape)
    name = "float0" if dtype == jax.dtypes.float0 else getattr(dtype, "name", None)  # NumPy's name for it is "void"
    return TensorSpec(sizes, name or str(dtype))


def jaxpr_as_fun(closed: Any) -> Callable[..., Sequence[Any]]:
    """Return a closed jaxpr as a function."""
    # Tracing the function does not run the user's Python again.
    return core.jaxpr_as_fun(closed)


POINTER_BYTES = 8 if jax.__version_info__ < (0, 12) else 4
"""Bytes that XLA counts when a tuple is read or written: the size of a pointer, for each array in the tuple."""

MULTIPLIES_NARROW = jax.__version_info__ >= (0, 12)
"""True if a CPU multiplies two `bfloat16` matrices directly, instead of copying them to `float32`."""

ASIN_FLOPS = 5 if jax.__version_info__ < (0, 12) else 3
"""FLOPs of an arc sine, besides two transcendental functions: XLA expands it."""
COMPLEX_ABS_FLOPS = 1 if jax.__version_info__ < (0, 12) else 25
"""FLOPs of `abs` of a complex number. Since 0.12, JAX expands it."""
DIGAMMA_FLOPS = 73 if jax.__version_info__ < (0, 12) else 75
"""FLOPs of `digamma`, besides three transcendental functions: XLA expands it."""
LGAMMA_FLOPS = None if jax.__version_info__ < (0, 12) else (292, 32)
"""FLOPs of `lgamma` in float32: for each element, and once per call. `None` before JAX 0.12."""
