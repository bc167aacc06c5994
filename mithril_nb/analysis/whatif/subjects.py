"""Programs with settings: made by a function, fixed with arguments that can be changed, or models of mithril_nb."""

from __future__ import annotations

import copy
import inspect as python_inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from mithril_nb.compilation import PhysicalModel, compile, graph_of
from mithril_nb.errors import ShapeError, UnknownOptionError, alike, short_repr
from mithril_nb.graph import edit
from mithril_nb.graph.edit import inside
from mithril_nb.graph.paths import split_path
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.graph.spec import Dim, as_dtype
from mithril_nb.inspection import Inspection
from mithril_nb.models.model import Model, with_attributes
from mithril_nb.targets import inspect
from mithril_nb.targets.arguments import title_of
from mithril_nb.targets.mithril_models import compiled_for, given_specs, is_mithril_model
from mithril_nb.targets.options import OPTIONS

Settings = Mapping[str, Any]
"""Value of each setting by name."""
Key = tuple[Any, ...]
PRECISIONS = ("default", "high", "highest", "bfloat16", "tensorfloat32", "float32")
"""Values of `precision`, as in `jax.default_matmul_precision`."""


def key_of(settings: Settings) -> Key:
    """Return a hashable key that is equal for equal settings; values need not be hashable.

    Examples:
        >>> key_of({"a": 1, "b": [2]}) == key_of({"b": [2], "a": 1}), key_of({"a": 1}) == key_of({"a": True})
        (True, False)
    """
    # For a dict, 1, 1.0 and True are the same key; for a program they are other sizes, dtypes or switches.
    return tuple((name, type(settings[name]), _hashable(settings[name])) for name in sorted(settings))


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        if isinstance(value, list | tuple):
            elements: Sequence[Any] = value
            return tuple((type(element), _hashable(element)) for element in elements)
        if isinstance(value, dict):
            named: dict[Any, Any] = value
            return tuple((name, type(element), _hashable(element)) for name, element in named.items())
        if hasattr(value, "shape") and hasattr(value, "dtype"):  # the repr of a long array omits its middle
            array = np.asarray(value)
            return array.shape, array.dtype.name, array.tobytes()
        return repr(value)
    return value


def is_size(value: Any) -> bool:
    """Return whether a value is an integer; truth values are not."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def plain(value: Any) -> Any:
    """Return a value for JSON: numbers, strings, truth values and `None` unchanged, others as a short text.

    Examples:
        >>> plain(np.int64(3)), plain(None), plain(np.dtype("float32"))
        (3, None, 'float32')
    """
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return format_value(value)


def format_value(value: Any) -> str:
    """Format a value as a short text. A dtype, as a NumPy dtype or scalar type, is formatted as its name.

    Examples:
        >>> format_value("bfloat16"), format_value(np.float32), format_value(64)
        ('bfloat16', 'float32', '64')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, np.dtype | type):
        with suppress(TypeError):  # a class that is not a dtype
            return np.dtype(value).name
    return short_repr(value, 40)


def format_setting(name: str, value: Any) -> str:
    """Format a setting as Python code.

    Examples:
        >>> format_setting("batch", 16), format_setting("a.dimension", "x")
        ('batch=16', '{"a.dimension": "x"}')
    """
    text = short_repr(value, 40)
    text = text if '"' in text else text.replace("'", '"')
    return f"{name}={text}" if name.isidentifier() else f'{{"{name}": {text}}}'


def checked(
    base: Settings,
    changes: Settings,
    program: str,
    takes_any: bool = False,
    is_made: bool = True,
    others: Sequence[str] = (),
) -> dict[str, Any]:
    """Return all settings with the changes applied. `others` are names of settings that are not in `base`."""
    known = dict.fromkeys((*others, *base))
    for name, value in by_name(changes).items():
        if name not in known and not takes_any:
            near = alike(name, known)
            make = f"def make({name}=...): ...  # use {name} in the function"
            raise UnknownOptionError(
                f"{program} has no setting {name!r}.",
                (("settings", ", ".join(known) or "none"),),
                format_setting(near[0], value) if near else make if is_made else f"ml.what_if(make)  # {make}",
            )
        before: Any = base.get(name)
        if is_size(before) and (not is_size(value) or (value < 0 <= before)):
            least = " of at least 0" * (before >= 0)
            raise UnknownOptionError(
                f"setting {name!r} of {program} must be an integer{least}, not {short_repr(value, 40)}.",
                (("current value", str(before)),),
                format_setting(name, max(1, 2 * before)),
            )
    settings = {**base, **changes}
    return {name: settings[name] for name in dict.fromkeys((*known, *changes)) if name in settings}


def by_name(changes: Any) -> Settings:
    """Return a dict of changes; an empty dict for `None`. Raise an error if it is not a dict with string keys."""
    if changes is None:
        return {}
    names: Any = changes
    if not isinstance(changes, Mapping) or not all(isinstance(name, str) for name in names):
        text = " ".join(short_repr(changes, 40).split())
        raise UnknownOptionError(
            f"settings must be keyword arguments or a dict with string keys, got {text}.",
            advice='batch=64  # or {"linear_0.dimension": 512} for names with a dot',
        )
    return changes  # pyright: ignore[reportUnknownVariableType]


def values_of(name: str, values: Any) -> tuple[Any, ...]:
    """Return the values of a swept setting without duplicates."""
    is_list = isinstance(values, Sequence | range) and not isinstance(values, str)
    if not (is_list or (isinstance(values, np.ndarray) and values.ndim)) or not len(values):
        raise UnknownOptionError(
            f"the values of {name!r} must be a non-empty list, not {short_repr(values, 40)}.",
            advice=f"{name}=[8, 16, 32]",
        )
    unpacked: list[Any] = list(values)
    listed: list[Any] = [value.item() if isinstance(value, np.generic) else value for value in unpacked]
    return tuple({key_of({name: value}): value for value in listed}.values())


NUMERICS = ("dtype", "precision")
"""Settings of numbers that every program has: they change its arguments and the context of its trace."""
COMMON_SETTINGS = ("batch", *NUMERICS)
"""Settings of a program that is not made by a function."""
_CASTS = "only its inputs have the new dtype, and the casts inside it are unchanged; "


class VariableProgram:
    """A program that can be built with different settings, such as its batch size or dtype.

    Attributes:
        name: Display name of the program.
        base: The initial settings.
        makes: True if the settings are passed to a user's function that makes the program.
        casts: Text for a note: the reason why another `dtype` can add casts to the program.
        device: The device to compile for; `None` for that of the program.
    """

    name: str
    base: dict[str, Any]
    makes = False
    casts = ""
    device: Any = None

    def with_changes(self, changes: Settings) -> dict[str, Any]:
        """Return all settings with the changes applied."""
        raise NotImplementedError

    def inspection(self, settings: Settings) -> Inspection:
        """Return the program for these settings, without computing a stage."""
        raise NotImplementedError


class MadeProgram(VariableProgram):
    """A program made by a user's function of settings.

    Args:
        make: The function. It takes settings by name, and returns a function and its arguments, a model and the shapes
            of its inputs, or an `Inspection`.
        settings: Settings that replace the defaults of `make`.
        starts: For a call of `ml.sweep`, initial values of swept settings that have no default.
    """

    makes = True
    casts = f'{_CASTS}make(dtype="float32") can build it in the new dtype'

    def __init__(self, make: Callable[..., Any], settings: Settings, starts: Settings = MappingProxyType({})):
        self.name = title_of(make)
        self._make = make
        defaults, self._takes_any = _defaults(make)
        defaults |= {name: starts[name] for name, value in defaults.items() if value is _NONE and name in starts}
        self._own = frozenset(defaults)
        for name, value in settings.items():
            if name not in defaults and name not in NUMERICS and not self._takes_any:
                checked(defaults, {name: value}, f"{self.name}()")
        missing = [name for name, value in defaults.items() if value is _NONE and name not in settings]
        if missing:
            raise UnknownOptionError(
                f"{self.name}() needs a value for {', '.join(map(repr, missing))}.",
                (("settings", ", ".join(defaults)),),
                f"ml.what_if({self.name}, {', '.join(f'{name}=...' for name in missing)})  # or, if {self.name}() is "
                f"the program itself, ml.what_if({self.name}, {', '.join(missing)})(batch=64)",
            )
        self.base = {name: value for name, value in defaults.items() if value is not _NONE} | dict(settings)

    def with_changes(self, changes: Settings) -> dict[str, Any]:
        """Return all settings with the changes applied."""
        around = {name: value for name, value in changes.items() if name in NUMERICS and name not in self.base}
        own = {name: value for name, value in changes.items() if name not in around}
        check_numerics(around)
        return {**checked(self.base, own, f"{self.name}()", self._takes_any), **around}

    def inspection(self, settings: Settings) -> Inspection:
        """Return the program for these settings, without computing a stage."""
        around = {name for name in settings if name not in self._own and (not self._takes_any or name in NUMERICS)}
        own = {name: value for name, value in settings.items() if name not in around}
        return with_numerics(
            lambda: self._inspected(self._make(**own)), **{name: settings[name] for name in around if name in NUMERICS}
        )

    def _inspected(self, result: Any) -> Inspection:
        if isinstance(result, Inspection):
            return result
        if isinstance(result, tuple) and len(result) > 1:  # pyright: ignore[reportUnknownArgumentType]
            target, *rest = result  # pyright: ignore[reportUnknownVariableType]
            if is_mithril_model(target) and len(rest) == 1 and isinstance(rest[0], Mapping):
                return inspect(target, shapes=rest[0])  # pyright: ignore[reportUnknownArgumentType]
            if callable(target) or is_mithril_model(target):
                is_whole = len(rest) == 1 and isinstance(rest[0], tuple)
                args: tuple[Any, ...] = rest[0] if is_whole else tuple(rest)
                return inspect(target, *args)
        raise UnknownOptionError(
            f"{self.name}() must return a function and its arguments, got {short_repr(result, 60)}.",
            (("or", "a model and the shapes of its inputs, or the result of ml.inspect"),),
            "return step, (jax.ShapeDtypeStruct((batch, 784), 'float32'),)",
        )


class FixedProgram(VariableProgram):
    """A program that is not made by a function: its batch, dtype and precision can change."""

    casts = f'{_CASTS}ml.what_if(model, ...), or ml.what_if(make) with make(dtype="float32"), rebuilds it'

    def __init__(self, inspection: Inspection):
        self.name = inspection.name
        self._inspection = inspection
        self._batch: Batch | None = None
        self.base: dict[str, Any] = {}
        dtype = common_dtype(inspection.arguments)
        if dtype is not None:
            self.base["dtype"] = dtype

    def with_changes(self, changes: Settings) -> dict[str, Any]:
        """Return all settings with the changes applied."""
        if "remat" in changes:
            raise UnknownOptionError(
                f"cannot set remat of program {self.name!r}: only a model has this setting.",
                (("settings", "batch, dtype, precision"),),
                "ml.what_if(make)(remat=True)  # make(remat) calls jax.checkpoint if remat is true",
            )
        if "batch" in changes and self._batch is None:
            self._batch = batch_of(self._inspection)
            self.base["batch"] = self._batch.size
        check_numerics(changes)
        return checked(self.base, changes, repr(self.name), is_made=False, others=COMMON_SETTINGS)

    def inspection(self, settings: Settings) -> Inspection:
        """Return the program for these settings, without computing a stage."""
        inspection = self._inspection
        size, batch = settings.get("batch"), self._batch
        if size is not None and batch is not None and size != batch.size:
            inspection = inspection.altered(lambda args: resized(args, batch, size))
        changed = {name: settings.get(name) for name in NUMERICS if settings.get(name) != self.base.get(name)}
        return with_numerics(lambda: inspection, **changed)


_NONE: Any = object()


def _defaults(make: Callable[..., Any]) -> tuple[dict[str, Any], bool]:
    try:
        parameters = python_inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return {}, True
    by_name = {python_inspect.Parameter.POSITIONAL_OR_KEYWORD, python_inspect.Parameter.KEYWORD_ONLY}
    defaults = {
        parameter.name: _NONE if parameter.default is parameter.empty else parameter.default
        for parameter in parameters
        if parameter.kind in by_name
    }
    return defaults, any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def check_numerics(settings: Settings, checks_width: bool = True) -> None:
    """Raise an error if the setting `dtype` or `precision` is not valid."""
    precision, dtype = settings.get("precision"), settings.get("dtype")
    if precision is not None and precision not in PRECISIONS:
        facts = (("known", ", ".join(PRECISIONS)),)
        raise UnknownOptionError(f"unknown precision {short_repr(precision, 40)}.", facts, 'precision="highest"')
    if dtype is None:
        return
    if not _is_float(dtype):
        raise UnknownOptionError(
            f"floating-point arrays cannot be cast to {format_value(dtype)!r}.",
            (("known", "float16, bfloat16, float32, float64"),),
            'dtype="bfloat16"',
        )
    # JAX would silently use a narrower dtype instead, with other costs.
    if checks_width and jax.dtypes.canonicalize_dtype(dtype) != jax.numpy.dtype(dtype):
        raise UnknownOptionError(
            f"JAX creates no {format_value(dtype)} arrays by default.",
            (("because", "jax_enable_x64 is off, so JAX would truncate them to 32 bits"),),
            'jax.config.update("jax_enable_x64", True)  # before arrays are created; else dtype="float32"',
        )


def _is_float(dtype: Any) -> bool:
    if hasattr(dtype, "shape") and not isinstance(dtype, jax.numpy.dtype | type):
        return False  # an array has a dtype, but is not one
    try:
        return bool(jax.numpy.issubdtype(jax.numpy.dtype(dtype), jax.numpy.floating))
    except (TypeError, ValueError):
        return False


def with_numerics(make: Callable[[], Inspection], *, dtype: Any = None, precision: Any = None) -> Inspection:
    """Make a program with another precision, and with its floating-point arguments in another dtype."""
    # The precision acts while JAX traces, which a user's function may do already.
    with nullcontext() if precision is None else jax.default_matmul_precision(precision):
        inspection = make()
        if dtype is None and precision is None:
            return inspection
        # Also without a new dtype: the context of a trace is that in which its inspection is made.
        return inspection.altered(lambda args: args if dtype is None else cast(args, dtype))


@dataclass(frozen=True)
class Batch:
    """The arrays of a program that have one row per sample.

    Attributes:
        size: Number of samples.
        leaves: Indices of the arrays among the leaves of the arguments.
    """

    size: int
    leaves: frozenset[int]


def common_dtype(args: Any) -> str | None:
    """Return the dtype of all floating-point arrays in `args`; `None` if there are none, or if dtypes differ."""
    dtypes = {str(leaf.dtype) for leaf in jax.tree.leaves(args) if _is_floating(leaf)}
    return dtypes.pop() if len(dtypes) == 1 else None


def cast(args: Any, dtype: Any) -> Any:
    """Return the arguments with all floating-point arrays in another dtype."""
    return jax.tree.map(
        lambda leaf: _spec(leaf, leaf.shape, jax.numpy.dtype(dtype)) if _is_floating(leaf) else leaf, args
    )


def resized(args: Any, batch: Batch, size: Any) -> Any:
    """Return the arguments for another number of samples, which may be a symbol."""
    leaves, structure = jax.tree.flatten(args)
    return structure.unflatten(
        [
            _spec(leaf, (size, *leaf.shape[1:]), leaf.dtype) if index in batch.leaves else leaf
            for index, leaf in enumerate(leaves)
        ]
    )


def batch_of(inspection: Inspection) -> Batch:
    """Return the number of samples of a program, and its arrays with one row per sample.

    A size is a candidate if it is the first dim of all arrays of an argument. Of several candidates, the batch is the
    one that can change while all other sizes stay. The first dim of a weight cannot change in this way.
    """
    candidates = _candidates(inspection.arguments)
    fitting = [batch for batch in candidates if _is_free(inspection, batch)] if len(candidates) > 1 else candidates
    if len(fitting) == 1:
        return fitting[0]
    leaves = inspection.inputs
    facts = [
        (
            f"first dim {batch.size}",
            ", ".join(f"{leaves[index].name} {leaves[index].spec}" for index in sorted(batch.leaves)),
        )
        for batch in fitting or candidates
    ]
    why = "several first dims are possible" if fitting else "no first dim of all arrays of an argument can vary"
    raise ShapeError(
        f"cannot determine the batch of {inspection.name!r}: {why}.",
        tuple(facts),
        "ml.what_if(make)  # make(batch=32) returns the function and the shapes of its arguments",
    )


def _candidates(args: tuple[Any, ...]) -> list[Batch]:
    groups: dict[int, set[int]] = {}
    start = 0
    for arg in args:
        leaves = jax.tree.leaves(arg)
        arrays = [index for index, leaf in enumerate(leaves, start) if len(getattr(leaf, "shape", ())) > 0]
        sizes = {leaves[index - start].shape[0] for index in arrays}
        if len(sizes) == 1:
            groups.setdefault(sizes.pop(), set()).update(arrays)
        start += len(leaves)
    return [Batch(size, frozenset(indices)) for size, indices in groups.items()]


def _is_free(inspection: Inspection, batch: Batch) -> bool:
    # One sample more breaks each product of a weight with an array of the old size.
    other = inspection.altered(lambda args: resized(args, batch, batch.size + 1))
    return other.stage("jaxpr").unavailable is None


def _is_floating(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating)


def _spec(leaf: Any, shape: tuple[Any, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    # Without these the spec would be another program: on one device, and with other promotions of dtypes.
    sharding, is_weak = getattr(leaf, "sharding", None), bool(getattr(leaf, "weak_type", False))
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding, weak_type=is_weak)


def attributes_of(graph: LogicalGraph) -> dict[str, Any]:
    """Return a dict of the attributes of all blocks, such as `{"mlp/linear_0.dimension": 64}`."""
    return {f"{path}.{name}": value for path, node in graph.walk() for name, value in node.block.attributes}


def with_attribute(graph: LogicalGraph, name: str, value: Any) -> LogicalGraph:
    """Return a graph with another value of a block's attribute, such as `"linear_0.dimension"`."""
    path, _, attribute = name.rpartition(".")
    names = split_path(path)

    def change(level: LogicalGraph) -> LogicalGraph:
        block = edit.node_of(level, names[-1]).block
        return edit.swap(level, names[-1], with_attributes(Model.of_block(block), {attribute: value}).block)

    return inside(graph, names[:-1], change)


class MithrilModel(VariableProgram):
    """A mithril_nb model with settings.

    The settings are:

    - `batch`, the size of the first axis of all inputs; only if this is the same number for all of them;
    - the sizes of the other axes of inputs, such as `"input.1"`;
    - `dtype`, `precision` and `remat`;
    - the attributes of blocks by path, such as `"linear_0.dimension"`.

    Args:
        target: The model, compiled or not.
        args: The inputs of the model, or their shapes.
        shapes: Shapes of the inputs by name.
        options: Other arguments of `ml.inspect`, and inputs by name.
    """

    casts = "some of its blocks always compute in float32"

    def __init__(
        self,
        target: Any,
        args: Sequence[Any],
        shapes: Mapping[str, Sequence[Dim]] | None,
        options: Mapping[str, Any],
    ):
        self._options = {name: value for name, value in options.items() if name in OPTIONS and name != "kwargs"}
        # An input of a model may be called like an option of `inspect`; `kwargs` has those.
        named = {name: value for name, value in options.items() if name not in OPTIONS} | dict(
            options.get("kwargs") or {}
        )
        model = compiled_for(target, *given_specs(target, args, named, shapes))
        self._target, self._model = target, model
        self._graph: LogicalGraph = target.graph if isinstance(target, PhysicalModel) else graph_of(target)
        self._shapes = {name: tuple(spec.shape) for name, spec in model.input_specs.items()}
        inspection = inspect(model, **self._options)
        self.name = inspection.name
        self.base: dict[str, Any] = {}
        firsts = {shape[0] for shape in self._shapes.values() if shape}
        if len(firsts) == 1 and isinstance(first := firsts.pop(), int):
            self.base["batch"] = first
        for name, shape in self._shapes.items():
            start = 1 if "batch" in self.base else 0
            self.base |= {f"{name}.{axis}": dim for axis, dim in enumerate(shape) if axis >= start}
        self.base |= {"dtype": common_dtype(inspection.arguments), "remat": False}

    def with_changes(self, changes: Settings) -> dict[str, Any]:
        """Return all settings with the changes applied."""
        for name, value in changes.items():
            if name not in self.base and name not in NUMERICS:
                self._add_attribute(name, value)
        check_numerics(changes, checks_width=False)
        if not isinstance(changes.get("remat", False), bool):
            raise UnknownOptionError(
                f"remat must be True or False, not {short_repr(changes['remat'], 40)}.",
                advice="remat=True",
            )
        program = f"program {self.name!r}"
        return checked(self.base, changes, program, is_made=False, others=("precision",))

    def inspection(self, settings: Settings) -> Inspection:
        """Return the program for these settings, without computing a stage."""
        shapes = {name: self._shape(name, settings) for name in self._shapes}
        attributes = {
            name: value
            for name, value in settings.items()
            if "." in name and name.rpartition(".")[0] not in self._shapes and value != self.base[name]
        }
        model, backend, dtype = self._model, self._model.backend, settings.get("dtype")
        if dtype is not None and dtype != self.base.get("dtype"):
            # The parameters and constants of a model have the dtype of the backend. If only the inputs were cast,
            # blocks would cast them back.
            backend = copy.copy(backend)
            backend.default_dtype = as_dtype(dtype)
        if attributes or shapes != self._shapes or backend is not model.backend:
            graph = self._graph
            for name, value in attributes.items():
                graph = with_attribute(graph, name, value)
            model = compile(Model.of(graph), backend, shapes=shapes, jit=model.jit)
        if settings.get("remat"):
            model = rematerialized(model)
        # `dtype` is not passed: the loss and the optimizer keep their dtypes, as for a model compiled in this dtype.
        return with_numerics(lambda: inspect(model, **self._options), precision=settings.get("precision"))

    def _shape(self, name: str, settings: Settings) -> tuple[Any, ...]:
        shape = self._shapes[name]
        dims = [settings.get(f"{name}.{axis}", dim) for axis, dim in enumerate(shape)]
        return tuple(settings["batch"] if axis == 0 and "batch" in settings else dim for axis, dim in enumerate(dims))

    def _add_attribute(self, name: str, value: Any) -> None:
        attributes = attributes_of(self._graph)
        if name in attributes:
            self.base[name] = attributes[name]
            return
        path = name.rpartition(".")[0]
        if not path and "/" not in name and not any(attribute.endswith(f".{name}") for attribute in attributes):
            return  # it may be another setting, misspelled
        own = [attribute.removeprefix(f"{path}.") for attribute in attributes if attribute.rpartition(".")[0] == path]
        blocks = [node_path for node_path, _ in self._graph.walk()]
        raise UnknownOptionError(
            f"program {self.name!r} has no setting {name!r}.",
            (
                ("settings", ", ".join(self.base)),
                (f"of {path}", ", ".join(own) or "no attributes") if path in blocks else ("blocks", ", ".join(blocks)),
            ),
            self._advice(name, value),
        )

    def _advice(self, name: str, value: Any) -> str:
        attributes = attributes_of(self._graph)
        path, _, own = name.rpartition(".")
        same = [attribute for attribute in attributes if attribute.rpartition(".")[2] == own]
        exact = [attribute for attribute in attributes if attribute.replace("/", ".") == name.replace("/", ".")]
        near = exact or (alike(name, same) if path else same) or same or alike(name, attributes, 0.8)
        return format_setting(near[0], value) if near else ""


def rematerialized(model: PhysicalModel) -> PhysicalModel:
    """Return a copy of a model that saves only its arguments: the backward pass recomputes intermediate values."""
    other = copy.copy(model)

    def recomputed(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(params: Any, inputs: Any, state: Any = None, *, key: Any = None, training: bool = False) -> Any:
            def run(params: Any, inputs: Any, state: Any, key: Any) -> Any:
                return method(params, inputs, state=state, key=key, training=training)

            return jax.checkpoint(run)(params, inputs, state, key)

        return call

    # An instance attribute overrides the method, as in `evaluate`.
    for name in ("forward", "forward_with_state"):
        other.__dict__[name] = recomputed(getattr(model, name))
    return other
