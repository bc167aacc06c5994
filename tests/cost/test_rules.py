"""Every rule against XLA's own count of the lowered module, one primitive at a time."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax
from jax_programs import flops_by_xla, spec

from mithril_nb.cost import cost_of
from mithril_nb.cost.formulas.parsing import meaning, parse
from mithril_nb.cost.formulas.rules import RULES, is_folded
from mithril_nb.cost.formulas.sizes import nbytes
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages import Equation

N = 60
X, INTS, BOOLS, WORDS = spec(N), spec(N, dtype="int32"), spec(N, dtype="bool"), spec(N, dtype="uint32")
TABLE, ROWS, UPDATES = spec(50, 16), spec(20, dtype="int32"), spec(20, 16)
KEY = spec(2, dtype="uint32")


def pool(x, window=(2, 2), strides=(2, 2), padding="VALID", init=-jnp.inf, op=lax.max):
    return lax.reduce_window(x, init, op, window, strides, padding)


def conv(x, kernel, **options):
    return lax.conv_general_dilated(x, kernel, dimension_numbers=("NHWC", "HWIO", "NHWC"), **options)


UNARY = (
    "neg sign floor ceil round is_finite exp exp2 log expm1 log1p tanh logistic sin cos tan asin acos atan sinh cosh "
    "asinh acosh atanh sqrt rsqrt cbrt square abs erf erfc erf_inv"
).split()
BINARY = "add sub mul div rem max min pow atan2 nextafter complex eq ne lt le gt ge".split()
BITS = "bitwise_and bitwise_or bitwise_xor shift_left shift_right_logical shift_right_arithmetic".split()

INTEGER = "neg sign abs clz population_count bitwise_not".split()
RUNNING = "cumsum cumprod cummax cummin cumlogsumexp".split()
POWERS = (-3, -2, -1, 0, 1, 2, 3, 4, 5, 7, 8, 10, 15)

CASES = {
    **{name: (getattr(lax, name), (X,)) for name in UNARY},
    **{name: (getattr(lax, name), (X, X)) for name in BINARY},
    **{name: (getattr(lax, name), (WORDS, WORDS)) for name in BITS},
    **{f"{name} of ints": (getattr(lax, name), (INTS,)) for name in INTEGER},
    **{f"power {y}": (lambda x, y=y: lax.integer_pow(x, y), (X,)) for y in POWERS},
    "power of an int": (lax.pow, (X, INTS)),
    "select": (lax.select, (BOOLS, X, X)),
    "select by a number": (lambda i, x: lax.select_n(i, x, x * 2), (INTS, X)),
    "select of three": (lambda i, x: lax.select_n(i, x, x * 2, x * 3), (INTS, X)),
    "select between equals": (lambda x, y: lax.select(x + y > 0, y, lax.stop_gradient(y)) * 2, (X, X)),
    "a condition under vmap": (
        jax.vmap(lambda p, x: lax.cond(p > 0, lambda x: x @ x, jnp.tanh, x)), (spec(5), spec(5, 8, 8)),
    ),
    "clamp": (lambda x: lax.clamp(0.0, x, 1.0), (X,)),
    "convert": (lambda x: x.astype("int32"), (X,)),
    "convert to bool": (lambda x: x.astype(bool), (X,)),
    "bits of a float": (lambda x: lax.bitcast_convert_type(x, "int32"), (X,)),
    "less precision": (lambda x: lax.reduce_precision(x, 5, 10), (X,)),
    "moving": (lambda x: jnp.concatenate([jnp.pad(x.reshape(6, 10).T, 1)[1:], jnp.zeros((3, 8))])[::-1], (X,)),
    "stack": (lambda x: jnp.stack([x, x]), (X,)),
    "split": (lambda x: lax.split(x, (20, 40)), (X,)),
    "x + 0": (lambda x: lax.add(x, 0.0), (X,)),
    "0 - x": (lambda x: lax.sub(0.0, x), (X,)),
    "x * 1": (lambda x: x * jnp.ones(N), (X,)),
    "x / 1": (lambda x: lax.div(x, 1.0), (X,)),
    "x ** 1": (lambda x: lax.pow(x, 1.0), (X,)),
    "constants": (lambda: jnp.exp(jnp.ones(N)) * 2 + jnp.zeros(N), ()),
    "never used": (lambda x: (jnp.sin(x), x + 1)[1], (X,)),
    "never used inside": (jax.grad(lambda x: jax.nn.relu(x).sum()), (X,)),
    "sum": (lambda x: x.sum(1), (spec(6, 10),)),
    "extrema": (lambda x: (x.max(0), x.min(1), x.prod()), (spec(6, 10),)),
    "any and all": (lambda b: (b.any(), b.all()), (BOOLS,)),
    "sum of bfloat16": (jnp.sum, (spec(N, dtype="bfloat16"),)),
    "own reduction": (lambda x: lax.reduce(x, 0.0, lambda a, b: a * b + a, (0,)), (X,)),
    "argmax": (lambda x: lax.argmax(x, 1, "int32"), (spec(6, 10),)),
    "argmin of ints": (lambda x: lax.argmin(x, 1, "int32"), (spec(6, 10, dtype="int32"),)),
    "sums of complex": (lambda z: (z.sum(1), z.prod(0), z.max(1), z.min()), (spec(6, 10, dtype="complex64"),)),
    "dot of complex": (jnp.matmul, (spec(7, 11, dtype="complex64"), spec(11, 13, dtype="complex64"))),
    **{f"sort {n}": (lax.sort, (spec(3, n),)) for n in (5, 8, 9, 100)},
    "pool": (pool, (spec(8, 8),)),
    "overlapping pool": (lambda x: pool(x, (3, 3), (1, 1), "SAME"), (spec(8, 8),)),
    "sum pool": (lambda x: pool(x, (3, 3), (2, 2), "VALID", 0.0, lax.add), (spec(9, 9),)),
    "own pool": (lambda x: pool(x, init=0.0, op=lambda a, b: a * b + a), (spec(8, 8),)),
    "gradient of a pool": (lambda x, g: jax.vjp(pool, x)[1](g), (spec(8, 8), spec(4, 4))),
    "gradient of a padded pool": (
        lambda x, g: jax.vjp(lambda x: pool(x, padding="SAME"), x)[1](g), (spec(9, 9), spec(5, 5)),
    ),
    "derivative of a pool": (lambda x, t: jax.jvp(pool, (x,), (t,)), (spec(8, 8), spec(8, 8))),
    "gradient of a sum pool": (
        lambda x, g: jax.vjp(lambda x: pool(x, (3, 3), (2, 2), "VALID", 0.0, lax.add), x)[1](g),
        (spec(9, 9), spec(4, 4)),
    ),
    "dot": (lambda a, b: a @ b, (spec(7, 11), spec(11, 13))),
    "batched dot": (lambda a, b: jnp.einsum("bij,bjk->bik", a, b), (spec(3, 7, 11), spec(3, 11, 13))),
    "outer product": (jnp.outer, (spec(7), spec(11))),
    "look up": (lambda t, i: t[i], (TABLE, ROWS)),
    "look up or fill": (lambda t, i: t.at[i].get(mode="fill"), (TABLE, ROWS)),
    "look up two or fill": (lambda t, i: t.at[i, i].get(mode="fill"), (spec(50, 16, 3), ROWS)),
    "add at": (lambda t, i, u: t.at[i].add(u), (TABLE, ROWS, UPDATES)),
    "add at, clipped": (lambda t, i, u: t.at[i].add(u, mode="clip"), (TABLE, ROWS, UPDATES)),
    "write at": (lambda t, i, u: t.at[i].set(u), (TABLE, ROWS, UPDATES)),
    "apply at": (lambda t, i: t.at[i].apply(lambda x: x * x + 1.0), (TABLE, ROWS)),
    "greatest at": (lambda t, i, u: t.at[i].max(u), (TABLE, ROWS, UPDATES)),
    "slices": (
        lambda x, i: lax.dynamic_update_slice(x, lax.dynamic_slice(x, (i,), (9,)), (i,)), (X, spec(dtype="int32")),
    ),
    "fft": (lambda x: jnp.fft.fft2(x), (spec(3, 8, 16, dtype="complex64"),)),
    "rfft": (lambda x: jnp.fft.rfft(x), (spec(3, 16),)),
    "fft of odd lengths": (lambda x: jnp.fft.fft2(x), (spec(3, 7, 30, dtype="complex64"),)),
    "sums of nothing": (lambda x: (x.sum(), x.sum(0), x.any(0)), (spec(0, 8),)),
    "product over nothing": (jnp.matmul, (spec(8, 0), spec(0, 9))),
    "most expensive branch by transcendentals": (
        lambda x: lax.cond(x.sum() > 0, lambda x: jnp.sin(jnp.tanh(x)), lambda x: x, x), (spec(8, 8),),
    ),
    "most expensive branch": (
        lambda x: lax.cond(x.sum() > 0, lambda x: x + 1, lambda x: (x * x) @ x * x, x), (spec(8, 8),),
    ),
}  # fmt: skip

CONVOLUTIONS = {
    "valid": {"padding": "VALID"},
    "same": {"padding": "SAME"},
    "strides": {"padding": "SAME", "window_strides": (2, 3)},
    "padding": {"padding": ((2, 0), (0, 3))},
    "left dilation": {"padding": ((1, 1), (1, 1)), "lhs_dilation": (2, 3)},
    "right dilation": {"padding": ((1, 1), (1, 1)), "rhs_dilation": (2, 1)},
    "both dilations": {
        "padding": ((1, 2), (0, 1)),
        "lhs_dilation": (2, 1),
        "rhs_dilation": (1, 2),
        "window_strides": (1, 2),
    },
}


@pytest.mark.parametrize("case", CASES)
def test_a_rule_counts_as_xla_does(case: str) -> None:
    fn, args = CASES[case]
    inspection = inspect(fn, *args)
    figures = jax.jit(fn).lower(*args).cost_analysis() or {}
    found = cost_of(inspection)
    assert found.unknown == ()
    assert all(meaning(letter, row.opcode) for row in found.rows for letter, _ in row.letters)
    assert found.total.transcendentals == figures.get("transcendentals", 0)
    assert flops_by_xla(found) == figures.get("flops", 0)


@pytest.mark.parametrize("options", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
@pytest.mark.parametrize(
    ("groups", "batch_groups", "dtype"), [(1, 1, "float32"), (3, 1, "float32"), (1, 2, "float32"), (1, 2, "complex64")]
)
def test_a_convolution_does_not_count_padding(options: dict, groups: int, batch_groups: int, dtype: str) -> None:
    options = {"window_strides": (1, 1), **options, "feature_group_count": groups, "batch_group_count": batch_groups}
    args = spec(4, 9, 10, 3, dtype=dtype), spec(3, 2, 3 // groups, 6, dtype=dtype)
    fn = lambda x, kernel: conv(x, kernel, **options)  # noqa: E731
    assert cost_of(inspect(fn, *args)).total.flops == jax.jit(fn).lower(*args).cost_analysis()["flops"]


@pytest.mark.parametrize("name", RUNNING)
def test_a_cumulative_sum_counts_each_element_once(name: str) -> None:
    found = inspect(lambda x: getattr(lax, name)(x, axis=1), spec(6, 10))
    each = {"cumlogsumexp": 8}.get(name, 1)
    assert (found.cost().total.flops, found.cost("lowered").total.flops) == (each * 6 * 9, each * 60 * 9)
    (row,) = found.cost().difference(found.cost("lowered")).differing
    assert (row.opcode, row.ours, row.theirs) == (name, each * 6 * 9, each * 60 * 9)
    assert row.reason == (
        "XLA counts a window as long as the axis for each element; we count one operation for each element"
    )
    assert cost_of(inspect(lambda x: getattr(lax, name)(x, axis=0), spec(0, 8))).total.flops == 0


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("name", RUNNING)
def test_a_cumulative_sum_counts_along_any_axis(name: str, dtype: str) -> None:
    real = {"cumlogsumexp": 8}.get(name, 1)
    of_complex = {"cumsum": 2, "cumprod": 6, "cummax": 9, "cummin": 9, "cumlogsumexp": 9 + 15 + 79 + 2}[name]
    each = real if dtype == "float32" else of_complex
    for axis, pairs in enumerate(((3 - 1) * 5 * 7, 3 * (5 - 1) * 7, 3 * 5 * (7 - 1))):
        found = inspect(lambda x, axis=axis: getattr(lax, name)(x, axis=axis), spec(3, 5, 7, dtype=dtype))
        assert found.cost().total.flops == each * pairs, axis


@pytest.mark.parametrize("shape", [(1000,), (10, 100), (2, 5, 100), (1, 1000)], ids=str)
@pytest.mark.parametrize("dtype", ["uint32", "uint16", "uint8"])
def test_random_bits_count_as_xla_does_when_their_loop_counts_once(shape: tuple, dtype: str) -> None:
    fn = lambda words: jax.random.bits(jax.random.wrap_key_data(words), shape, dtype)  # noqa: E731
    found = cost_of(inspect(fn, KEY))
    (cost,) = (row for row in found.rows if row.opcode == "random_bits")
    assert cost.once.flops == pytest.approx(jax.jit(fn).lower(KEY).cost_analysis()["flops"], abs=1)
    assert cost.once.flops is not None
    assert cost.flops == pytest.approx(cost.once.flops + 4 * 23 * 1000, abs=40)


LETTERS = set(
    "n B M N K F C G k valid in out window left kernel source indices updates combiner rounds more cases rows m q I j "
    "products others calls".split()
)


def test_every_rule_has_a_formula_and_a_documented_function() -> None:
    for name, rule in RULES.items():
        assert rule.formula, name
        assert rule.find.__doc__, name
        for text in (rule.general.flops, rule.general.transcendentals, rule.general.once or "0"):
            assert parse(text).names <= LETTERS, name
            assert all(meaning(letter, name) for letter in parse(text).names), name


def test_constant_folding() -> None:
    two = (TensorSpec((3,)), TensorSpec((3,)))
    known = itertools.product((None, 0.0, 1.0, "?"), repeat=2)
    folded = {
        name: {pair for pair in known_pairs if is_folded(Equation("0", name, "", None, two, two[:1], constants=pair))}
        for known_pairs in [list(known)]
        for name in ("add", "sub", "mul", "div", "max")
    }
    constant = {pair for pair in itertools.product((0.0, 1.0, "?"), repeat=2)}
    assert folded["add"] - constant == {(None, 0.0), (0.0, None)}
    assert folded["sub"] - constant == {(None, 0.0)}
    assert folded["mul"] - constant == {(None, 1.0), (1.0, None)}
    assert folded["div"] == folded["max"] == constant


def test_bytes_of_any_dtype() -> None:
    assert nbytes(TensorSpec((), "token")) == 0
    assert nbytes(TensorSpec((4,), "float8_e4m3fn")) == 4
    assert nbytes(TensorSpec((5,), "int4")) == 3


@pytest.mark.parametrize(
    "cut", [(slice(1, None),), (slice(None), slice(-1, None)), (slice(2, 9, 3), slice(0, 5)), (slice(4, 4),)]
)
def test_a_slice_reads_only_its_elements(cut: tuple[slice, ...]) -> None:
    def part(x):
        return lax.slice(
            x, *zip(*(each.indices(size) for each, size in zip(bounds, x.shape, strict=True)), strict=True)
        )

    bounds = (*cut, *[slice(None)] * (2 - len(cut)))
    x = spec(12, 7)
    compiled = jax.jit(part).lower(x).compile()
    size = 2 * np.zeros((12, 7), "f4")[bounds].nbytes
    assert compiled.cost_analysis().get("bytes accessed", 0) == size
    assert sum(row.bytes_accessed for row in cost_of(inspect(part, x)).rows) == size


def test_bytes_of_unknown_sizes_are_unknown() -> None:
    assert nbytes(TensorSpec((4,), "opaque")) is None
    assert nbytes(TensorSpec(("batch", 4), "float32")) is None
    (batch,) = export.symbolic_shape("batch")
    found = cost_of(inspect(lambda x, w: (x @ w).T, spec(batch, 4), spec(4, 3)))
    product, turned = found.rows
    assert (product.flops, product.transcendentals, product.bytes_accessed) == (None, 0, None)
    assert (product.formula, product.letters) == ("2·B·M·N·K", (("B", 1), ("M", "batch"), ("N", 3), ("K", 4)))
    assert (turned.flops, turned.bytes_accessed) == (0, None)  # moving data takes no arithmetic, whatever its size
    assert [(one.opcode, one.reason, one.count) for one in found.unknown] == [("dot_general", "size unknown", 1)]


def test_debug_prints_cost_nothing() -> None:
    def program(x):
        jax.debug.print("{x}", x=x)
        return x @ x

    found = cost_of(inspect(program, spec(8, 8)))
    assert (found.total.flops, found.unknown) == (2 * 8**3, ())


def test_a_reshape_moves_data_only_if_it_permutes_axes():
    def moved(**options):
        (row,) = inspect(lambda x: jax.lax.reshape(x, (6, 2), **options), spec(3, 4)).cost().rows
        return row.bytes_accessed

    assert (moved(), moved(dimensions=(1, 0))) == (0, 2 * 12 * 4)
