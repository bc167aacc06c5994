"""Read a traced program as a flat list of statements: calls are inlined, and only control flow keeps its bodies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from mithril_nb.emission.naming.names import UniqueNames
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
    names = UniqueNames(reserved)
    reader = _JaxprReader(program.by_id, {name: names.new(name) for name in trace.sizes_without_numbers})
    jaxpr = trace.closed.jaxpr
    inputs = tuple(reader.value(_name_of(leaf), var) for leaf, var in zip(trace.inputs, jaxpr.invars, strict=True))
    env: dict[Any, Operand] = dict(zip(jaxpr.invars, inputs, strict=True))
    reader.bind_constants(trace.closed, env)
    statements = reader.statements(program.top, env)
    return Function("", inputs, reader.operands(jaxpr.outvars, env), tuple(statements)), reader.constants


def _name_of(leaf: Leaf) -> str:
    name = leaf.keys[-1] if leaf.keys and not leaf.keys[-1].isdigit() else "_".join((leaf.argument, *leaf.keys))
    return f"d_{name}" if leaf.argument == "output_gradients" else name


class _JaxprReader:
    def __init__(self, by_id: Mapping[str, Equation], sizes: Mapping[str, str]):
        self._by_id, self._sizes = by_id, sizes
        self.constants: dict[Value, Any] = {}
        self._values: dict[int, tuple[Value, Any]] = {}  # keeps the constants alive, so their ids stay unique

    def value(self, name: str, var: Any) -> Value:
        shape = sized(tuple(getattr(var.aval, "shape", ())), self._sizes)
        return Value(name, shape, jax_versions.spec_of(var.aval).dtype)

    def bind_constants(self, closed: Any, env: dict[Any, Operand]) -> None:
        variables = jax_versions.open_jaxpr(closed).constvars
        for var, constant in zip(variables, getattr(closed, "consts", ()), strict=True):
            env[var] = self._constant(constant, var)

    def _constant(self, constant: Any, atom: Any) -> Operand:
        key = id(constant)  # equal constants of one trace are one object; comparing arrays would take long
        if key not in self._values:
            value = self.value("constant", atom)
            self._values[key] = (value, constant)
            # NumPy has no arrays of keys.
            if hasattr(constant, "dtype") and jax.numpy.issubdtype(constant.dtype, jax.dtypes.prng_key):
                constant = jax.random.key_data(constant)
            self.constants[value] = np.asarray(constant)
        return self._values[key][0]

    def operands(self, atoms: Iterable[Any], env: Mapping[Any, Operand]) -> tuple[Operand, ...]:
        return tuple([self._operand(atom, env) for atom in atoms])

    def _operand(self, atom: Any, env: Mapping[Any, Operand]) -> Operand:
        if not jax_versions.is_literal(atom):
            return env[atom]
        dtype = jax_versions.spec_of(atom.aval).dtype
        if getattr(atom.aval, "shape", ()) != () or dtype in ("float0", "token"):  # no Python numbers
            return self._constant(atom.val, atom)
        # A literal may be a Python float, of which JAX uses only what the dtype holds.
        return Number(np.asarray(atom.val).astype(atom.aval.dtype).item(), dtype)

    def statements(
        self, sites: Sequence[Site], env: dict[Any, Operand], around: Equation | None = None
    ) -> list[Statement]:
        """Return the statements that compute some equations, and add their results to the variables `env`.

        If `around` is given, all statements have its id, block and role. Equations of a function that combines two
        items, and those that replace another equation, have none of their own.
        """
        statements: list[Statement] = []
        for site in sites:
            record, equation = around or self._by_id[site.id], site.equation
            inputs = self.operands(equation.invars, env)
            inner = self._inlined(site, inputs)
            if site.primitive == "platform_index":
                # In `jax.lax.platform_dependent`, `None` is the default branch.
                platforms = enumerate(equation.params["platforms"])
                index = next(index for index, names in platforms if names is None or "cpu" in names)
                results = (Number(index, "int32"),)
            elif (closed := jax_versions.expansion(equation)) is not None:
                jaxpr = jax_versions.open_jaxpr(closed)
                scope = dict(zip(jaxpr.invars, inputs, strict=True))
                self.bind_constants(closed, scope)
                # Lines of the expansion represent the equations of the body too, so that these keep a link.
                replaced = [inner_site.id for _, body in site.bodies for inner_site in body]
                expanded = self.statements(sites_of(jaxpr)[0], scope, record)
                statements += [statement.also(replaced) for statement in expanded]
                results = self.operands(jaxpr.outvars, scope)
            elif inner is None:
                order = equation.params.get("dimensions") if site.primitive == "reshape" else None
                if order is not None:  # a transpose before the reshape
                    shape = tuple([inputs[0].shape[axis] for axis in order])
                    output = Value(_HINTS["transpose"], shape, inputs[0].dtype)
                    statements.append(_new("transpose", inputs, (output,), {"permutation": tuple(order)}, record))
                    inputs = statements[-1].outputs
                statement = self._statement(site, record, inputs, around)
                statements += _of_one_dtype(statement) if site.primitive in _PRODUCTS else [statement]
                results = statement.outputs
            else:
                (jaxpr, body), operands = inner
                scope = dict(zip(jaxpr.invars, operands, strict=True))
                self._bind_body(site, jaxpr, scope)
                statements += self.statements(body, scope, around)
                results = self.operands(jaxpr.outvars, scope)
            env.update(zip(equation.outvars, results, strict=True))
        return statements

    def _inlined(
        self, site: Site, inputs: tuple[Operand, ...]
    ) -> tuple[tuple[Any, list[Site]], tuple[Operand, ...]] | None:
        # A nested jaxpr replaces a call, a `cond` whose index is a number, and a `custom_linear_solve`.
        if site.primitive == "cond" and isinstance(inputs[0], Number):  # as after `platform_index`; XLA clamps it
            return site.bodies[min(max(int(inputs[0].value.real), 0), len(site.bodies) - 1)], inputs[1:]
        if len(site.bodies) != 1:
            return None
        jaxpr, body = site.bodies[0]
        if site.primitive == "custom_linear_solve":
            lengths = site.equation.params["const_lengths"]  # operands: constants of four functions, then the vectors
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
        primitive, equation = site.primitive, site.equation
        params = {
            key: sized(param, self._sizes)
            for key, param in equation.params.items()
            if not any(map(jax_versions.is_jaxpr, param if isinstance(param, tuple | list) else [param]))
        }
        hints = [_HINTS.get(primitive, primitive.replace("-", "_"))] * len(equation.outvars)
        bodies: list[Function] = []
        if primitive == "reshape":
            params["dimensions"] = None  # the transpose is a statement
        # Bodies close over what they read, as functions in Python do; JAX passes such values as operands.
        if primitive in ("scan", "while", "cond"):
            loops = wirings(site)
            carried = len(loops[0].carried)

            def body_of(loop: Wiring) -> Function:
                assert loop.operands is not None
                count = len(loop.operands) if primitive == "cond" else loop.constants
                outer = {index: inputs[loop.operands[index]] for index in range(count)}
                return self._body(site, loop.jaxpr, loop.sites, outer, around, 0 if primitive == "cond" else carried)

            bodies = [*map(body_of, loops)]
            if primitive == "scan":
                params["num_carry"] = carried
                inputs = inputs[loops[0].constants :]
            elif primitive == "while":
                bodies.reverse()
                carried = len(hints)
                if bodies[0].outputs[0].shape:  # under vmap
                    bodies = _per_item(bodies[0], bodies[1], body_of(loops[1]), record)
                inputs = inputs[len(inputs) - carried :]
            else:
                inputs = inputs[:1]
            if primitive != "cond":
                hints = ["last"] * carried + ["stacked"] * (len(hints) - carried)
        elif primitive in _COMBINED or primitive.startswith("scatter"):
            jaxprs = [value for value in equation.params.values() if jax_versions.is_jaxpr(value)]
            # A scatter that replaces items has no function that combines two items.
            for closed in jaxprs[:1]:
                bodies.append(self._body(site, closed, sites_of(jax_versions.open_jaxpr(closed))[0], {}, record))
        outputs = tuple([self.value(name, var) for name, var in zip(hints, equation.outvars, strict=True)])
        return _new(primitive, inputs, outputs, params, record, tuple(bodies))

    def _body(
        self, site: Site, closed: Any, body: list[Site], outer: Mapping[int, Operand], around: Equation | None,
        carried: int = 0,
    ) -> Function:  # fmt: skip
        jaxpr = jax_versions.open_jaxpr(closed)
        own = {index: var for index, var in enumerate(jaxpr.invars) if index not in outer}
        names = ["carry"] * carried + ["item"] * (len(own) - carried)
        inputs = tuple([self.value(name, var) for name, var in zip(names, own.values(), strict=True)])
        env: dict[Any, Operand] = dict(zip(own.values(), inputs, strict=True))
        env |= {jaxpr.invars[index]: operand for index, operand in outer.items()}
        self.bind_constants(closed, env)
        self._bind_body(site, jaxpr, env)
        statements = self.statements(body, env, around)
        return Function("", inputs, self.operands(jaxpr.outvars, env), tuple(statements))


def _new(
    primitive: str, inputs: Iterable[Operand], outputs: tuple[Value, ...], params: Mapping[str, Any], record: Equation,
    bodies: tuple[Function, ...] = (),
) -> Statement:  # fmt: skip
    return Statement(
        primitive, tuple(inputs), outputs, params, (record.id,), record.block, record.role, record.source, bodies
    )


def _per_item(condition: Function, body: Function, again: Function, record: Equation) -> list[Function]:
    # The condition of a loop under `vmap` computes a flag for each item of the batch. Run until all flags are false,
    # and keep the items whose flag is false: `again`, a copy of the condition, computes the flags in the body.

    def new(primitive: str, inputs: Sequence[Operand], sizes: Any, dtype: str, **params: Any) -> Statement:
        return _new(primitive, inputs, (Value(_HINTS[primitive], sizes, dtype),), params, record)

    (flags,) = condition.outputs
    axes = tuple(range(len(flags.shape)))
    continues = new("reduce_or", (flags,), (), "bool", axes=axes)
    condition = replace(condition, outputs=continues.outputs, statements=(*condition.statements, continues))
    again = substituted(replace(again, inputs=()), dict(zip(again.inputs, body.inputs, strict=True)))
    statements, results = [*again.statements, *body.statements], list[Operand]()
    for old, result in zip(body.inputs, body.outputs, strict=True):
        params = {"shape": old.shape, "broadcast_dimensions": axes, "sharding": None}
        expanded = new("broadcast_in_dim", again.outputs, old.shape, "bool", **params)
        selected = new("select_n", (*expanded.outputs, old, result), old.shape, old.dtype)
        statements += [expanded, selected]
        results += selected.outputs
    return [condition, replace(body, outputs=tuple(results), statements=tuple(statements))]


def _of_one_dtype(product: Statement) -> list[Statement]:
    # A library adds the terms of a sum in the dtype of its operands, and JAX in `preferred_element_type`, which is the
    # dtype of the result.
    inputs, (output,) = list(product.inputs), product.outputs
    dtypes = [jax.numpy.dtype(operand.dtype) for operand in inputs]
    is_wide = jax.numpy.dtype(output.dtype).itemsize >= max(dtype.itemsize for dtype in dtypes)
    sum_dtype = output.dtype if is_wide else str(jax.numpy.result_type(*dtypes))

    def converted(operand: Operand, result: Value) -> Statement:
        params = {"new_dtype": jax.numpy.dtype(result.dtype), "weak_type": False, "sharding": None}
        return replace(product, primitive="convert_element_type", inputs=(operand,), outputs=(result,), params=params)

    before: list[Statement] = []
    for index, operand in enumerate(inputs):
        if operand.dtype != sum_dtype:
            inputs[index] = wide = Value(_HINTS["convert_element_type"], operand.shape, sum_dtype)
            before.append(converted(operand, wide))
    total = output if output.dtype == sum_dtype else Value(output.name, output.shape, sum_dtype)
    after = [] if total is output else [converted(total, output)]
    return [*before, replace(product, inputs=tuple(inputs), outputs=(total,)), *after]
