"""Counts that depend on more than the sizes of an equation, against closed forms computed in integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax_programs import spec

from mithril_nb.cost.formulas.rules import of_items, rule
from mithril_nb.inspection import inspect_function as inspect


def over_i(name: str) -> Callable[..., Any]:
    return jax.vmap(lambda x: getattr(lax, name)(x, "i"), axis_name="i")


@pytest.mark.parametrize("name", ["psum", "pmax", "pmin"])
def test_a_collective_over_an_axis_of_vmap_is_a_reduction(name: str) -> None:
    assert inspect(over_i(name), spec(500)).cost().total.flops == 500 - 1
    assert inspect(over_i(name), spec(500, 3)).cost().total.flops == 500 * 3 - 3
    assert inspect(over_i(name), spec(0, 3)).cost().total.flops == 0
    cost = inspect(over_i(name), spec(500)).cost("lowered")
    assert cost.total.flops == 500 - 1


def test_a_collective_over_vmap_and_devices_counts_both() -> None:
    mesh = jax.make_mesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    both = jax.vmap(lambda x: lax.psum(x, ("i", "d")), axis_name="i")
    split = jax.shard_map(both, mesh=mesh, in_specs=jax.P(), out_specs=jax.P(), check_vma=False)
    found = inspect(split, spec(500, 3)).cost()
    assert sum(row.flops or 0 for row in found.rows if row.opcode.startswith("psum")) == (500 * 3 - 3) + 3


def test_a_collective_of_complex_numbers_counts_real_sums() -> None:
    found = inspect(over_i("psum"), spec(500, dtype="complex64")).cost()
    assert found.total.flops == 2 * (500 - 1)
    assert found.notes[0] == "1 × psum: 998 FLOPs by 2·(in - out); XLA counts 499 by in - out, 0.5 times as many"


SIZES = jnp.array([2, 6], jnp.int32)


def ragged(numbers: tuple[Any, Any], ragged_axes: tuple[int, ...], group_axes: tuple[int, ...]) -> Callable[..., Any]:
    kinds = lax.RaggedDotDimensionNumbers((numbers, ((), ())), ragged_axes, group_axes)
    return lambda left, right: lax.ragged_dot_general(left, right, SIZES, kinds)


RAGGED = {
    "rows in groups": (ragged(((1,), (1,)), (0,), (0,)), (spec(8, 5), spec(2, 5, 7))),
    "left transposed": (ragged(((0,), (1,)), (1,), (0,)), (spec(5, 8), spec(2, 5, 7))),
    "contracted axis in groups": (ragged(((0,), (0,)), (0,), ()), (spec(8, 5), spec(8, 7))),
    "gradient of the right": (
        lambda right, left: jax.vjp(lambda r: lax.ragged_dot(left, r, SIZES), right)[1](jnp.ones((8, 7))),
        (spec(2, 5, 7), spec(8, 5)),
    ),
    "gradient of the left": (
        lambda left, right: jax.vjp(lambda x: lax.ragged_dot(x, right, SIZES), left)[1](jnp.ones((8, 7))),
        (spec(8, 5), spec(2, 5, 7)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RAGGED)
def test_each_row_of_a_ragged_product_is_in_one_group(name: str) -> None:
    fn, args = RAGGED[name]
    rows = [row for row in inspect(fn, *args).cost().rows if row.opcode == "ragged_dot_general" and row.repeats]
    assert [row.flops for row in rows] == [2 * 8 * 5 * 7]


def test_a_ragged_batch_counts_each_matrix_once() -> None:
    kinds = lax.RaggedDotDimensionNumbers((((2,), (1,)), ((0,), (0,))), (0,), ())
    found = inspect(lambda x, y: lax.ragged_dot_general(x, y, SIZES, kinds), spec(8, 3, 5), spec(8, 5, 7))
    assert found.cost().total.flops == 2 * 8 * 3 * 5 * 7


def test_a_ragged_product_of_complex_numbers() -> None:
    args = spec(8, 5, dtype="complex64"), spec(2, 5, 7, dtype="complex64")
    assert inspect(lambda x, y: lax.ragged_dot(x, y, SIZES), *args).cost().total.flops == 8 * 8 * 5 * 7


@pytest.mark.parametrize(("bits", "words"), [("uint32", 100), ("uint64", 200), ("uint16", 100)])
@pytest.mark.parametrize(("algorithm", "each"), [("RNG_THREE_FRY", 62), ("RNG_PHILOX", 25), ("RNG_DEFAULT", 25)])
def test_generated_bits_count_by_their_algorithm(algorithm: str, each: int, bits: str, words: int) -> None:
    kind = getattr(lax.RandomAlgorithm, algorithm)

    def generate(state: Any) -> Any:
        return lax.rng_bit_generator(state, (100,), dtype=bits, algorithm=kind)[1]

    with jax.enable_x64(True):
        found = inspect(generate, spec(4, dtype="uint32"))
        cost = found.cost()
        (row,) = cost.rows
        compiled = found.cost("compiled").total.flops
    assert dict(found.equations[0].params)["algorithm"] == algorithm
    assert row.flops == each * words
    assert cost.notes[0].startswith(f"1 × rng_bit_generator: {each * words:,} FLOPs by {each * words // 100}·n; XLA")
    if algorithm == "RNG_THREE_FRY":  # XLA expands it when it compiles
        assert compiled is not None
        assert row.flops == pytest.approx(compiled, rel=0.04)


OF_COMPLEX = {
    "add": (2, 0), "sub": (2, 0), "neg": (2, 0), "mul": (6, 0), "div": (11, 0), "eq": (2, 0), "ne": (2, 0),
    "real": (0, 0), "imag": (0, 0), "conj": (1, 0), "abs": (2 + 1, 1), "sign": (5, 1), "square": (14, 0),
    "max": (9, 0), "min": (9, 0), "clamp": (2 * 9, 0), "integer_pow": (11, 0), "one_minus_square": (2 + 2 + 6, 0),
    "exp": (15, 4), "exp2": (16, 4), "log": (62, 4), "log2": (64, 4), "log1p": (79, 5), "logistic": (18, 4),
    "sin": (14, 4), "cos": (15, 4), "sqrt": (86, 7), "sinh": (95, 12), "cosh": (95, 12), "asin": (105, 9),
    "acos": (105, 9), "acosh": (105, 9), "asinh": (104, 9), "atan": (47, 2), "atanh": (45, 2),
    "tan": (2 + 5 + 1 + 2, 3), "tanh": (2 + 5 + 1 + 2, 3), "expm1": (7, 4), "rsqrt": (3 + 1 + 2, 4),
    "pow": (3 + 1 + 2 + 4 + 3, 6), "atan2": (6 + 6 + 2 + 86 + 1 + 2 + 11 + 62 + 1, 7 + 4),
}  # fmt: skip
"""FLOPs and transcendentals of each elementwise primitive for one complex element."""
MOVES = {"copy", "optimization_barrier", "stop_gradient", "unstack", "tile", "create_token", "dce_sink"}
OTHERS = {"cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum", "dot_general", "sort"}
"""Primitives that are not elementwise; they are tested as routines."""


def elementwise_of_complex() -> dict[str, tuple[Callable[..., Any], int]]:
    """Each function of `jax.lax` that is one equation on one to three complex arrays, by its primitive."""
    found: dict[str, tuple[Callable[..., Any], int]] = {}
    for name in dir(lax):
        fn = getattr(lax, name)
        if name.startswith("_") or not callable(fn) or isinstance(fn, type):
            continue
        for count in (1, 2, 3):
            try:
                equations = jax.make_jaxpr(fn)(*(jnp.zeros(60, "complex64"),) * count).eqns
            except Exception:  # needs other arguments
                continue
            if len(equations) == 1:
                found[equations[0].primitive.name] = fn, count
    return found


def test_each_elementwise_primitive_of_complex_numbers_has_its_own_count() -> None:
    found = elementwise_of_complex()
    assert found.keys() - OF_COMPLEX.keys() <= MOVES | OTHERS
    assert OF_COMPLEX.keys() - found.keys() <= {"log2", "one_minus_square"}  # primitives since JAX 0.12
    for dtype in ("complex64", "complex128"):
        for primitive, (fn, count) in found.items():
            flops, transcendentals = OF_COMPLEX.get(primitive, (0, 0))
            if primitive in OTHERS:
                continue
            with jax.enable_x64(True):
                cost = inspect(fn, *(spec(60, dtype=dtype),) * count).cost()
                lowered = inspect(fn, *(spec(60, dtype=dtype),) * count).cost("lowered")
            total = cost.total
            assert (total.flops, total.transcendentals) == (60 * flops, 60 * transcendentals), primitive
            noted = [note for note in cost.notes if note.startswith(f"1 × {primitive}: {60 * flops:,} FLOPs")]
            theirs = lowered.total.flops
            assert bool(noted) == (theirs != total.flops), (primitive, theirs)
            assert all(f"XLA counts {theirs:,}" in note for note in noted), (primitive, theirs, noted)


def test_making_and_converting_complex_numbers() -> None:
    def count(fn: Callable[..., Any], *args: Any) -> tuple[int | None, int | None]:
        with jax.enable_x64(True):
            total = inspect(fn, *args).cost().total
        return total.flops, total.transcendentals

    real, number, whole = spec(100), spec(100, dtype="complex64"), spec(100, dtype="int32")
    assert count(lax.complex, real, real) == (0, 0)
    assert count(lax.conj, number) == (100, 0)
    assert count(lax.conj, real) == (0, 0)
    assert count(lambda z: z.astype("complex128"), number) == (2 * 100, 0)
    assert count(lambda x: x.astype("complex128"), real) == (100, 0)
    assert count(lax.pow, number, whole) == (13 * 100 + 100, 6 * 100)


def test_argmax_of_complex_numbers() -> None:
    assert inspect(jnp.argmax, spec(9, dtype="complex64")).cost().total.flops == (9 - 3 + 5 + 2 + 2) * 8


def test_a_primitive_has_one_rule() -> None:
    with pytest.raises(ValueError, match="has a rule already") as raised:
        rule("mul", flops="n")(of_items)
    assert str(raised.value) == "'mul' has a rule already: which of two is used would depend on import order"


OPERATIONS_IN = {  # measured on the modules that JAX 0.10 lowers: float32, float64
    "lgamma": (53, 53), "digamma": (73, 73), "erf_inv": (37, 100), "erfc": (62, 90), "bessel_i0e": (83, 173),
    "bessel_i1e": (83, 173), "zeta": (121, 121), "polygamma": (260, 260), "sinh": (10, 10), "cosh": (3, 3),
    "igamma": (93 + 48 * 20, 93 + 48 * 20), "regularized_incomplete_beta": (219 + 76 * 20, 219 + 76 * 20),
}  # fmt: skip
if jax.__version_info__ >= (0, 12):
    OPERATIONS_IN |= {"digamma": (75, 75), "polygamma": (262, 262)}
OPERANDS = {"zeta": 2, "polygamma": 2, "igamma": 2, "regularized_incomplete_beta": 3}


@pytest.mark.parametrize("name", OPERATIONS_IN)
def test_a_special_function_counts_by_its_dtype(name: str) -> None:
    operands = OPERANDS.get(name, 1)
    fn = lax.betainc if name == "regularized_incomplete_beta" else getattr(lax, name)
    single, double = OPERATIONS_IN[name]
    converted = single + operands + 1  # both ways: half precision is computed in float32
    expected = {"float32": single, "float64": double, "bfloat16": converted, "float16": converted}
    with jax.enable_x64(True):
        for dtype, each in expected.items():
            found = inspect(fn, *(spec(100, dtype=dtype),) * operands)
            cost, theirs = found.cost(), found.cost("lowered").total.flops
            assert cost.total.flops == 100 * each, dtype
            if name == "lgamma" and theirs != 100 * each:  # another algorithm since JAX 0.12
                start = f"1 × lgamma: {100 * each:,} FLOPs by {each}·n; XLA counts {theirs:,} by "
                assert cost.notes[0].startswith(start), dtype
            elif single < 1000:  # loops count once
                assert theirs == 100 * each, dtype


@pytest.mark.parametrize("generator", ["rbg", "unsafe_rbg"])
def test_keys_of_other_generators_note_what_xla_counts(generator: str) -> None:
    key = jax.ShapeDtypeStruct((), jax.random.key(0, impl=generator).dtype)
    bits = inspect(lambda k: jax.random.bits(k, (10, 10)), key).cost()
    assert bits.total.flops == 25 * 100
    assert bits.total.bytes_accessed == 4 * 4 + 100 * 4  # a key is four words
    assert bits.notes[0] == "1 × random_bits: 2,500 FLOPs by 25·n; XLA counts 0"
    if generator == "unsafe_rbg":
        split, folded = (inspect(fn, key).cost() for fn in (lambda k: jax.random.split(k, 4), fold))
        assert split.notes[0] == "1 × random_split: 4,000 FLOPs by 1000·n; XLA counts 0"
        assert folded.notes[0] == (
            "1 × random_fold_in: 1,005 FLOPs by 1005·n; XLA counts 5 by 5·n, 0.00498 times as many"
        )


def fold(key: Any) -> Any:
    return jax.random.fold_in(key, 4)


def test_a_default_key_has_no_note_on_conventions() -> None:
    key = jax.ShapeDtypeStruct((), jax.random.key(0).dtype)
    cost = inspect(lambda k: (jax.random.bits(k, (10, 10)), fold(k), jax.random.split(k, 4)), key).cost()
    assert not [note for note in cost.notes if "XLA counts" in note]


COMBINED: dict[str, tuple[Callable[..., Any], Any, tuple[int, int]]] = {
    "sin at": (lambda x: x.at[jnp.array([1, 2])].apply(jnp.sin), spec(10), (0, 2)),
    "logistic at": (lambda x: x.at[jnp.array([1, 2])].apply(jax.nn.sigmoid), spec(10), (2 * 3, 2)),
    "cube and sum at": (lambda x: x.at[jnp.array([1, 2])].apply(lambda x: x**3 + 1.0), spec(10), (2 * 3, 0)),
    "reduction": (
        lambda x: lax.reduce(x, 0.0, lambda a, b: jnp.exp(a) * b + a, (0,)), spec(10), (2 * 9, 9),
    ),
    "window": (
        lambda x: lax.reduce_window(x, 0.0, lambda a, b: jnp.tanh(a) * b, (3,), (1,), "VALID"), spec(10),
        (8 * 2, 8 * 2),
    ),
    "reduction of complex": (
        lambda x: lax.reduce(x, 0j, lambda a, b: a * b + a, (0,)), spec(10, dtype="complex64"), (9 * (6 + 2), 0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COMBINED)
def test_combiners_count_by_their_own_rules(name: str) -> None:
    fn, given, (flops, transcendentals) = COMBINED[name]
    found = inspect(fn, given)
    rows = [row for row in found.cost().rows if row.opcode in ("scatter", "reduce", "reduce_window")]
    assert [(row.flops, row.transcendentals) for row in rows] == [(flops, transcendentals)]
    assert found.cost("lowered").total.transcendentals == transcendentals
    assert "combiner" not in found.stage("jaxpr").text
    if "complex" in name:
        assert found.cost().notes[0] == (
            "1 × reduce: 72 FLOPs by (in - out)·combiner; XLA counts 18 by (in - out)·theirs, 0.25 times as many"
        )
