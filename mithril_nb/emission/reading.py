"""Read a traced program as a flat list of statements: calls are inlined, and only control flow keeps its bodies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from mithril_nb.emission.naming.names import Names
from mithril_nb.emission.program import Function, Number, Operand, Statement, Value, substituted
from mithril_nb.emission.sizes import sized
from mithril_nb.stages import jax_versions
from mithril_nb.stages.records import Equation
from mithril_nb.stages.trace import traced
from mithril_nb.stages.trace.equations import Site, Wiring, sites_of, wirings
from mithril_nb.stages.trace.tracing import Leaf

_COMBINED = frozenset({"reduce", "reduce_window", "scatter", "select_and_scatter", "reduce_scatter"})
_PRODUCTS = frozenset({"dot_general", "conv_general_dilated"})
_HINTS = {
    "dot_general": "dot", "conv_general_dilated": "conv", "reduce_sum": "total", "reduce_max": "largest",
    "reduce_min": "smallest", "reduce_prod": "product", "reduce_and": "all_true", "reduce_or": "any_true",
    "reduce_window_max": "pooled", "reduce_window_sum": "pooled", "broadcast_in_dim": "expanded", "iota": "index",
    "reshape": "reshaped", "transpose": "transposed", "select_n": "selected", "convert_element_type": "converted",
    "eq": "is_equal", "ne": "is_different", "gt": "is_greater", "ge": "is_greater", "lt": "is_less", "le": "is_less",
    "add": "added", "add_any": "added", "sub": "difference", "mul": "scaled", "div": "ratio", "neg": "negated",
    "integer_pow": "power", "pow": "power", "max": "maximum", "min": "minimum", "and": "both", "or": "either",
    "not": "negation", "squeeze": "squeezed", "expand_dims": "expanded", "concatenate": "joined", "split": "part",
    "gather": "gathered", "dynamic_slice": "sliced", "slice": "sliced", "dynamic_update_slice": "updated",
    "scatter": "scattered", "scatter-add": "scattered", "select_and_scatter_add": "unpooled", "rev": "reversed_",
    "sort": "sorted_", "cumsum": "cumulated", "random_bits": "bits", "random_wrap": "key", "random_fold_in": "key",
    "random_split": "keys", "random_unwrap": "key", "clamp": "clamped", "logistic": "sigmoid", "pad": "padded",
    "stop_gradient": "detached",
    "scan": "result", "while": "result", "cond": "result", "square": "squared", "abs": "absolute",
    "random_seed": "key", "bitcast_convert_type": "bits", "shift_right_logical": "shifted", "is_finite": "is_finite",
}  # fmt: skip
"""Names for the results of primitives, by primitive. Other results are named after their primitive."""


def read(program: traced.Program, reserved: Iterable[str] = ()) -> tuple[Function, dict[Value, Any]]:
    """Return a traced program as one function, and the arrays of its constants.

    Sizes without a number get names that are not in `reserved`.
    """
    trace = program.trace
    names = Names(reserved)
    reader = _Reader(program.by_id, {name: names.new(name) for name in trace.sizes_without_numbers})
    jaxpr = trace.closed.jaxpr
    inputs = tuple(reader.value(_name_of(leaf), var) for leaf, var in zip(trace.inputs, jaxpr.invars, strict=True))
    env: dict[Any, Operand] = dict(zip(jaxpr.invars, inputs, strict=True))
    reader.bind_constants(trace.closed, env)
    statements = reader.statements(program.top, env)
    outputs = tuple([reader.operand(atom, env) for atom in jaxpr.outvars])
    return Function("", inputs, outputs, tuple(statements)), reader.constants


def array_of(constant: Any) -> np.ndarray:
    """Return a constant of a jaxpr as a NumPy array; a random key is an array of its `uint32` data."""
    if hasattr(constant, "dtype") and jax.numpy.issubdtype(constant.dtype, jax.dtypes.prng_key):
        constant = jax.random.key_data(constant)
    return np.asarray(constant)


def _name_of(leaf: Leaf) -> str:
    name = leaf.keys[-1] if leaf.keys and not leaf.keys[-1].isdigit() else "_".join((leaf.argument, *leaf.keys))
    return f"d_{name}" if leaf.argument == "output_gradients" else name


class _Reader:
    def __init__(self, by_id: Mapping[str, Equation], sizes: Mapping[str, str]):
        self._by_id, self._sizes = by_id, sizes
        self.constants: dict[Value, Any] = {}
        self._known: dict[int, tuple[Value, Any]] = {}  # keeps the constants alive, so their ids stay unique

    def value(self, name: str, var: Any) -> Value:
        """Return a new value with the shape and dtype of a variable of a jaxpr."""
        return Value(
            name, sized(tuple(getattr(var.aval, "shape", ())), self._sizes), jax_versions.spec_of(var.aval).dtype
        )

    def bind_constants(self, closed: Any, env: dict[Any, Operand]) -> None:
        """Add the constants of a closed jaxpr to the variables `env`."""
        variables = jax_versions.open_jaxpr(closed).constvars
        for var, constant in zip(variables, getattr(closed, "consts", ()), strict=True):
            env[var] = self._constant(constant, var)

    def _constant(self, constant: Any, atom: Any) -> Operand:
        if id(constant) not in self._known:
            value = self.value("constant", atom)
            self._known[id(constant)] = (value, constant)
            self.constants[value] = array_of(constant)
        return self._known[id(constant)][0]

    def operand(self, atom: Any, env: Mapping[Any, Operand]) -> Operand:
        """Return the operand for a variable or a literal of a jaxpr."""
        if not jax_versions.is_literal(atom):
            return env[atom]
        if getattr(atom.aval, "shape", ()) != () or jax_versions.spec_of(atom.aval).dtype in ("float0", "token"):
            return self._constant(atom.val, atom)
        dtype = jax_versions.spec_of(atom.aval).dtype
        return Number(np.asarray(atom.val).astype(atom.aval.dtype).item(), dtype)

    def statements(
        self, sites: Sequence[Site], env: dict[Any, Operand], around: Equation | None = None
    ) -> list[Statement]:
        """Return the statements that compute some equations.

        Args:
            sites: The equations, with those of their nested jaxprs.
            env: The operand for each variable in scope. The results of the equations are added.
            around: The `Equation` with the id, block and role for all statements. Needed for equations without an
                `Equation`: equations of a function that combines two items, and equations that replace another one.
                `None` to use the `Equation` of each site.
        """
        found: list[Statement] = []
        for site in sites:
            record = around or self._by_id[site.id]
            inputs = tuple([self.operand(atom, env) for atom in site.equation.invars])
            inner = self._inlined(site, inputs)
            if site.primitive == "platform_index":
                env[site.equation.outvars[0]] = Number(_place_of_cpu(site.equation.params["platforms"]), "int32")
            elif (closed := jax_versions.expansion(site.equation)) is not None:
                jaxpr = jax_versions.open_jaxpr(closed)
                scope = dict(zip(jaxpr.invars, inputs, strict=True))
                self.bind_constants(closed, scope)
                inner_ids = tuple([one.id for _, body in site.bodies for one in body])  # of the replaced function
                expanded = self.statements(sites_of(jaxpr)[0], scope, record)
                found += [replace(one, equations=(*one.equations, *inner_ids)) for one in expanded]
                env.update(zip(site.equation.outvars, [self.operand(one, scope) for one in jaxpr.outvars], strict=True))
            elif inner is None:
                order = site.equation.params.get("dimensions") if site.primitive == "reshape" else None
                if order is not None:  # a transpose before the reshape
                    found.append(_transposed(inputs[0], order, record))
                    inputs = found[-1].outputs
                statement = self._statement(site, record, inputs, around)
                env.update(zip(site.equation.outvars, statement.outputs, strict=True))
                found += _of_one_dtype(statement) if site.primitive in _PRODUCTS else [statement]
            else:
                (jaxpr, body), given = inner
                scope: dict[Any, Operand] = dict(zip(jaxpr.invars, given, strict=True))
                self._bind_body(site, jaxpr, scope)
                found += self.statements(body, scope, around)
                results = [self.operand(atom, scope) for atom in jaxpr.outvars]
                env.update(zip(site.equation.outvars, results, strict=True))
        return found

    def _inlined(
        self, site: Site, inputs: tuple[Operand, ...]
    ) -> tuple[tuple[Any, list[Site]], tuple[Operand, ...]] | None:
        """Return the nested jaxpr that replaces an equation, with its sites and its operands; `None` if none does.

        A nested jaxpr replaces a call, a `cond` whose index is a number, and a `custom_linear_solve`.
        """
        if site.primitive == "cond" and isinstance(inputs[0], Number):
            return site.bodies[min(max(int(inputs[0].value.real), 0), len(site.bodies) - 1)], inputs[1:]
        if len(site.bodies) != 1:
            return None
        jaxpr, body = site.bodies[0]
        if site.primitive == "custom_linear_solve":
            lengths = site.equation.params["const_lengths"]
            first = lengths.matvec + lengths.vecmat
            last = first + lengths.solve + lengths.transpose_solve
            return (jaxpr, body), (*inputs[first : first + lengths.solve], *inputs[last:])
        if site.primitive in jax_versions.CALL_NAMES and len(jaxpr.outvars) == len(site.equation.outvars):
            return (jaxpr, body), inputs
        return None

    def _bind_body(self, site: Site, jaxpr: Any, scope: dict[Any, Operand]) -> None:
        for _, closed in jax_versions.bodies(site.equation):
            if jax_versions.open_jaxpr(closed) is jaxpr:
                self.bind_constants(closed, scope)

    def _statement(
        self, site: Site, record: Equation, inputs: tuple[Operand, ...], around: Equation | None
    ) -> Statement:
        given = site.equation.params
        params = {key: sized(param, self._sizes) for key, param in given.items() if not _holds_jaxpr(param)}
        if site.primitive == "reshape":
            params["dimensions"] = None  # the transpose is a statement
        bodies: list[Function] = []
        if site.primitive in ("scan", "while", "cond"):
            loops = wirings(site)
            bodies = [self._body(site, one.jaxpr, one.sites, _closed_over(site, one, inputs), around) for one in loops]
            if site.primitive == "scan":
                params["num_carry"] = len(loops[0].carried)
                inputs = inputs[loops[0].constants :]
            elif site.primitive == "while":
                bodies.reverse()
                if bodies[0].outputs[0].shape:
                    loop = loops[1]
                    again = self._body(site, loop.jaxpr, loop.sites, _closed_over(site, loop, inputs), around)
                    bodies = _per_item(bodies[0], bodies[1], again, record)
                inputs = inputs[len(inputs) - len(site.equation.outvars) :]
            else:
                inputs = inputs[:1]
        elif site.primitive in _COMBINED or site.primitive.startswith("scatter"):
            jaxprs = [one for one in site.equation.params.values() if jax_versions.is_jaxpr(one)]
            # A scatter that replaces items has no function that combines two items.
            for one in jaxprs[:1]:
                bodies.append(self._body(site, one, sites_of(jax_versions.open_jaxpr(one))[0], {}, record))
        hint = _HINTS.get(site.primitive, site.primitive.replace("-", "_"))
        hints = [hint] * len(site.equation.outvars)
        if site.primitive in ("scan", "while"):
            carried = params.get("num_carry", len(hints))
            hints = ["last"] * carried + ["stacked"] * (len(hints) - carried)
        outputs = tuple([self.value(name, var) for name, var in zip(hints, site.equation.outvars, strict=True)])
        return Statement(
            site.primitive, inputs, outputs, params, (record.id,), record.block, record.role, record.source,
            tuple(bodies),
        )  # fmt: skip

    def _body(
        self, site: Site, closed: Any, body: list[Site], outer: Mapping[int, Operand], around: Equation | None = None
    ) -> Function:
        """Return a body as a function. In place of the inputs whose index is in `outer`, it reads these operands."""
        jaxpr = jax_versions.open_jaxpr(closed)
        carried = len(wirings(site)[0].carried) if site.primitive in ("scan", "while") else 0
        names = ["carry"] * carried + ["item"] * (len(jaxpr.invars) - len(outer) - carried)
        own = iter(names)
        env: dict[Any, Operand] = {
            var: outer[place] if place in outer else self.value(next(own), var)
            for place, var in enumerate(jaxpr.invars)
        }
        inputs = tuple([env[var] for place, var in enumerate(jaxpr.invars) if place not in outer])
        self.bind_constants(closed, env)
        self._bind_body(site, jaxpr, env)
        statements = self.statements(body, env, around)
        outputs = tuple([self.operand(atom, env) for atom in jaxpr.outvars])
        return Function("", inputs, outputs, tuple(statements))  # pyright: ignore[reportArgumentType]


def _per_item(condition: Function, body: Function, again: Function, record: Equation) -> list[Function]:
    """Return a scalar condition, and a body, for a `while` loop under `vmap`.

    The condition of such a loop computes one flag for each item of the batch. The loop runs until all flags are
    false. The new body does not change items whose flag is false.

    Args:
        condition: The condition, which computes the flags.
        body: The body, which changes all items.
        again: A copy of the condition with other values. The new body contains it to compute the flags.
        record: The record of the `while`.
    """

    def made(primitive: str, inputs: Sequence[Operand], like: Operand, **params: Any) -> Statement:
        output = Value(_HINTS[primitive], like.shape, like.dtype)
        return Statement(
            primitive, tuple(inputs), (output,), params, (record.id,), record.block, record.role, record.source
        )

    (flags,) = condition.outputs
    axes = tuple(range(len(flags.shape)))
    continues = made("reduce_or", (flags,), Number(False, "bool"), axes=axes)
    condition = replace(condition, outputs=continues.outputs, statements=(*condition.statements, continues))
    again = substituted(replace(again, inputs=()), dict(zip(again.inputs, body.inputs, strict=True)))
    statements, results = [*again.statements, *body.statements], list[Operand]()
    for old, new in zip(body.inputs, body.outputs, strict=True):
        flag = Value("", old.shape, "bool")
        params = {"shape": old.shape, "broadcast_dimensions": axes, "sharding": None}
        expanded = made("broadcast_in_dim", again.outputs, flag, **params)
        selected = made("select_n", (*expanded.outputs, old, new), old)
        statements += [expanded, selected]
        results += selected.outputs
    return [condition, replace(body, outputs=tuple(results), statements=tuple(statements))]


def _of_one_dtype(product: Statement) -> list[Statement]:
    """Return a product with operands and a result of one dtype, between the conversions that this needs.

    A library adds the terms of a sum in the dtype of its operands, and JAX in `preferred_element_type`, which is the
    dtype of the result.
    """
    inputs, (output,) = list(product.inputs), product.outputs
    dtypes = [jax.numpy.dtype(operand.dtype) for operand in inputs]
    is_wide = jax.numpy.dtype(output.dtype).itemsize >= max(dtype.itemsize for dtype in dtypes)
    sum_dtype = output.dtype if is_wide else str(jax.numpy.result_type(*dtypes))

    def converted(given: Operand, result: Value) -> Statement:
        params = {"new_dtype": jax.numpy.dtype(result.dtype), "weak_type": False, "sharding": None}
        return replace(product, primitive="convert_element_type", inputs=(given,), outputs=(result,), params=params)

    before: list[Statement] = []
    for index, operand in enumerate(inputs):
        if operand.dtype != sum_dtype:
            inputs[index] = wide = Value(_HINTS["convert_element_type"], operand.shape, sum_dtype)
            before.append(converted(operand, wide))
    total = output if output.dtype == sum_dtype else Value(output.name, output.shape, sum_dtype)
    after = [] if total is output else [converted(total, output)]
    return [*before, replace(product, inputs=tuple(inputs), outputs=(total,)), *after]


def _transposed(operand: Operand, order: Sequence[int], record: Equation) -> Statement:
    shape = tuple([operand.shape[axis] for axis in order])
    output = Value(_HINTS["transpose"], shape, operand.dtype)
    params = {"permutation": tuple(order)}
    return Statement("transpose", (operand,), (output,), params, (record.id,), record.block, record.role, record.source)


def _place_of_cpu(platforms: Sequence[Sequence[str] | None]) -> int:
    """Return the index of the CPU's branch in `jax.lax.platform_dependent`. `None` is the default branch."""
    return next(place for place, names in enumerate(platforms) if names is None or "cpu" in names)


def _closed_over(site: Site, wiring: Wiring, inputs: tuple[Operand, ...]) -> dict[int, Operand]:
    """Return the operands that a body reads but that are no carry and no item, by index of the body's input."""
    assert wiring.operands is not None
    count = len(wiring.operands) if site.primitive == "cond" else wiring.constants
    return {place: inputs[wiring.operands[place]] for place in range(count)}


def _holds_jaxpr(value: Any) -> bool:
    if jax_versions.is_jaxpr(value):
        return True
    return isinstance(value, tuple | list) and any(map(jax_versions.is_jaxpr, value))
