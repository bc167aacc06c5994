"""C expressions of elementwise primitives, and the helper functions that they and the loops call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mithril_nb.emission.c.types import C_TYPES, bits, is_float, literal, suffix
from mithril_nb.emission.program import INFIX, Statement
from mithril_nb.emission.unsupported import unsupported

_LIBRARY = {name: name for name in (
    "exp log sin cos tan sinh cosh tanh sqrt floor ceil expm1 log1p asin acos atan asinh acosh atanh atan2 cbrt exp2 "
    "erf erfc nextafter pow"
).split()} | {"abs": "fabs", "rem": "fmod"}  # fmt: skip
"""The function of `double` numbers in `math.h`, by primitive. The function of `float` numbers ends with `f`."""
_HELPERS = {"max": "maximum", "min": "minimum", "sign": "sign_of", "erf_inv": "erf_inverse"}
_ON_INTEGERS = {
    "div": "quotient", "rem": "remainder_of", "abs": "magnitude", "shift_left": "shift_left",
    "shift_right_logical": "shift_right", "shift_right_arithmetic": "shift_right_signed",
}  # fmt: skip
_TOTAL_COMPARISONS = {"eq_to": "==", "lt_to": "<", "le_to": "<="}
"""Comparisons by IEEE 754's total order, in which -0 is below 0."""
_OTHERS = "div neg square rsqrt logistic integer_pow not select_n clamp convert_element_type is_finite round "
_OTHERS += "reduce_precision population_count"
SUPPORTED = frozenset({*INFIX, *_LIBRARY, *_HELPERS, *_ON_INTEGERS, *_TOTAL_COMPARISONS, *_OTHERS.split()})
"""The elementwise primitives that have a C expression."""
_ATOM = re.compile(r"\*?\w+(\.\w+)?(\[[^\[\]]*\])*|\w+\([^()]*\)|\([^()]*\)")


def expression(op: Statement, operands: Sequence[str], helpers: Helpers) -> str:
    """Return the C expression of an item of an elementwise result, from those of the items of the operands."""
    name, dtype = op.primitive, op.dtype
    for each in (*op.inputs, *op.outputs):
        if each.dtype not in C_TYPES or each.dtype.startswith("key"):
            raise unsupported(op, "c", f"dtype {each.dtype}")
    operand = op.operand.dtype
    items = [text if _ATOM.fullmatch(text) else f"({text})" for text in operands]
    is_short = not is_float(dtype) and dtype not in ("bool", "float0") and bits(dtype) < 32
    short = f"({C_TYPES[dtype]})" if is_short else ""  # C computes with short integers as `int`
    end = "f" if dtype == "float32" else ""
    if name == "select_n":
        return _select(items, operand)
    if name == "convert_element_type":
        return _convert(items[0], operand, dtype, helpers)
    if operand == "bool":  # C would compute with 0 and 1 as `int`
        name = {"max": "or", "min": "and", "add": "or", "mul": "and"}.get(name, name)
    if name in _TOTAL_COMPARISONS:  # integers have one order
        rank = helpers.use("total_order", operand) if is_float(operand) else ""
        return f" {_TOTAL_COMPARISONS[name]} ".join(f"{rank}({text})" if rank else text for text in items)
    if name in INFIX:
        text = f"{items[0]} {INFIX[name]} {items[1]}"
        return f"{short}({text})" if short else text
    if name in _ON_INTEGERS and not is_float(dtype):
        return f"{helpers.use(_ON_INTEGERS[name], dtype)}({', '.join(operands)})"
    if name in _HELPERS:
        return f"{helpers.use(_HELPERS[name], dtype)}({', '.join(operands)})"
    if name == "pow" and not is_float(op.inputs[1].dtype):  # as in XLA, by repeated multiplications
        return f"{helpers.use('integer_power', dtype)}({operands[0]}, (int){items[1]})"
    if name in _LIBRARY and is_float(dtype):
        return f"{_LIBRARY[name]}{end}({', '.join(operands)})"
    first, unit = items[0], literal(1, dtype)
    if name == "div":
        return f"{first} / {items[1]}"
    if name == "neg":
        return f"{short}-{first}"
    if name == "not":
        return f"!{first}" if dtype == "bool" else f"({C_TYPES[dtype]})~{first}"
    if name == "square":
        return f"{short}({first} * {first})" if short else f"{first} * {first}"
    if name == "rsqrt":
        return f"{unit} / sqrt{end}({operands[0]})"
    if name == "logistic":
        return f"{unit} / ({unit} + exp{end}(-{first}))"
    if name == "integer_pow":
        return f"{helpers.use('integer_power', dtype)}({operands[0]}, {int(op['y'])})"
    if name == "is_finite":
        return f"(bool)isfinite({operands[0]})"
    if name == "round":
        is_even = int(op["rounding_method"]) == 1  # nearbyint rounds as the processor does: to even
        return f"{'nearbyint' if is_even else 'round'}{end}({operands[0]})"
    if name == "clamp":
        least, largest = helpers.use("maximum", dtype), helpers.use("minimum", dtype)
        return f"{largest}({least}({operands[0]}, {operands[1]}), {operands[2]})"
    if name == "population_count":
        return f"({C_TYPES[dtype]})__builtin_popcountll((uint{bits(dtype)}_t){first})"
    if name == "reduce_precision":
        return _reduce_precision(op, first)
    raise unsupported(op, "c")


def _select(items: list[str], which: str) -> str:
    test, *cases = items
    if which == "bool":
        return f"{test} ? {cases[1]} : {cases[0]}"
    text = cases[-1]
    for index in range(len(cases) - 2, -1, -1):  # XLA clamps the index
        text = f"{test} <= {index} ? {cases[index]} : {text}"
    return text


def _convert(item: str, source: str, target: str, helpers: Helpers) -> str:
    if target == source:
        return item
    if target == "bool":  # also for NaN, as in XLA
        return f"{item} != 0"
    if is_float(source) and not is_float(target):
        return f"{helpers.use(f'from_{source}', target)}({item})"
    return f"({C_TYPES[target]}){item}"


def _reduce_precision(op: Statement, item: str) -> str:
    # C has no narrower float than `float`, and casts round to nearest even.
    widths = op["exponent_bits"], op["mantissa_bits"]
    dtype = op.dtype
    if widths == {"float32": (8, 23), "float64": (11, 52)}.get(dtype):
        return item
    if dtype == "float64" and widths == (8, 23):
        return f"(double)(float){item}"
    raise unsupported(op, "c", f"{widths[0]} bits of exponent and {widths[1]} bits of mantissa")


_FLOATS = {
    # fmax and fmin of C return the other number for NaN, XLA returns NaN.
    "maximum": "return a != a || a > b ? a : b;",
    "minimum": "return a != a || a < b ? a : b;",
    "sign_of": "return a > 0 ? 1 : a < 0 ? -1 : a;",
    "erf_inverse": """if (fabs((double)a) > 1) return NAN;
    if (a == 0) return a;
    if (a == 1 || a == -1) return a * ({T})INFINITY;
    const double y = fabs((double)a), w = -log1p(-y * y);
    // A first guess (S. Winitzki), then Halley's steps on erf, or in the tail on erfc, which is more exact there.
    const double c = 4.33 - 0.5 * w;
    double x = sqrt(fmax(0, sqrt(c * c + 6.8027 * w) - c));
    for (int step = 0; step < 6; step++) {{
        const double slope = exp(-x * x) * 1.1283791670955126;
        const double excess = y < 0.5 ? erf(x) - y : (1 - y) - erfc(x);
        const double ratio = slope > 0 ? excess / slope : 0;
        x -= ratio / (1 + x * ratio);
    }}
    return ({T})(a < 0 ? -x : x);""",
    # The order of a sort, NaN last; then those of argmax and argmin, in which NaN wins.
    "is_before": "return a < b || (b != b && a == a);",
    "is_above": "return a > b || (a != a && b == b);",
    "is_below": "return a < b || (a != a && b == b);",
    "log_add_exp": """if (a == b) return a + ({T})0.69314718055994530942;
    const {T} larger = a > b ? a : b, smaller = a > b ? b : a;
    return a != a || b != b ? a + b : larger + log1p{f}(exp{f}(smaller - larger));""",
}
_INTEGERS = {
    "maximum": "return a > b ? a : b;",
    "minimum": "return a < b ? a : b;",
    "sign_of": "return (a > 0) - (a < 0);",
    "is_before": "return a < b;",
    "is_above": "return a > b;",
    "is_below": "return a < b;",
    # XLA defines division by zero: the quotient is -1, the remainder is the dividend.
    "quotient": "return b == 0 ? ({T})-1 : b == ({T})-1 && ({T})-1 < ({T})1 ? ({T})-a : ({T})(a / b);",
    "remainder_of": "return b == 0 ? a : b == ({T})-1 && ({T})-1 < ({T})1 ? 0 : ({T})(a % b);",
    "magnitude": "return a < 0 ? ({T})-a : a;",
    "shift_left": "return b >= ({T}){bits} || b < ({T})0 ? 0 : ({T})(({U})a << b);",
    "shift_right": "return b >= ({T}){bits} || b < ({T})0 ? 0 : ({T})(({U})a >> b);",
    "shift_right_signed": "return a >> (b >= ({T}){bits} || b < ({T})0 ? ({T})({bits} - 1) : b);",
}
# Without comparisons that are always false, about which compilers warn.
_UNSIGNED = {
    "sign_of": "return a > 0;",
    "quotient": "return b == 0 ? ({T})-1 : ({T})(a / b);",
    "remainder_of": "return b == 0 ? a : ({T})(a % b);",
    "magnitude": "return a;",
    "shift_left": "return b >= ({T}){bits} ? 0 : ({T})(a << b);",
    "shift_right": "return b >= ({T}){bits} ? 0 : ({T})(a >> b);",
    "shift_right_signed": "return ({T})(({signed})a >> (b >= ({T}){bits} ? ({T})({bits} - 1) : b));",
}
_ONE_ARGUMENT = frozenset({"sign_of", "erf_inverse", "magnitude"})
_BOOL_RESULT = frozenset({"is_before", "is_above", "is_below"})

_POWER = """static inline {T} integer_power_{S}({T} base, int exponent)
{{
    {T} result = 1;
    for (int left = exponent < 0 ? -exponent : exponent; left; left >>= 1) {{
        if (left & 1)
            result = ({T})(result * base);
        base = ({T})(base * base);
    }}
    return exponent < 0 ? ({T})(1 / result) : result;
}}"""
_ORDER = """// Sort the positions of n items: {first}. Equal items keep their order.
static void {name}_{S}(int n, const {T} *key, int *order, int *spare)
{{
    for (int width = 1; width < n; width *= 2) {{
        for (int first = 0; first < n; first += 2 * width) {{
            const int middle = first + width < n ? first + width : n;
            const int last = first + 2 * width < n ? first + 2 * width : n;
            for (int left = first, right = middle, to = first; to < last; to++) {{
                const bool is_smaller = right < last && left < middle && {test}_{S}(key[order[right]],
                                                                                key[order[left]]);
                const bool take_right = left >= middle || is_smaller;
                spare[to] = order[take_right ? right++ : left++];
            }}
        }}
        memcpy(order, spare, sizeof(int) * (size_t)n);
    }}
}}"""
_TOTAL_ORDER = """static inline int{bits}_t total_order_{S}({T} a)
{{
    int{bits}_t order;
    memcpy(&order, &a, sizeof order);
    return order < 0 ? order ^ INT{bits}_MAX : order;
}}"""
_PRODUCT = """#if defined __AVX512F__
typedef {T} lanes_{S} __attribute__((vector_size(64)));
#elif defined __AVX__
typedef {T} lanes_{S} __attribute__((vector_size(32)));
#else
typedef {T} lanes_{S} __attribute__((vector_size(16)));
#endif

// out[i][j] = sum of a[i][k] * b[k][j] over k; a[i][k] is a[i * a_row + k * a_column].
// A tile of 6 or 8 rows and 2 vectors of columns stays in registers; b is copied in panels that stay in the cache.
#if defined __GNUC__ && !defined __clang__
__attribute__((optimize("fp-contract=fast")))  // a multiplication and an addition in one instruction, rounded once
#endif
static void matmul_{S}(
    int rows, int columns, int inner,
    const {T} *a, ptrdiff_t a_row, ptrdiff_t a_column,
    const {T} *b, ptrdiff_t b_row, ptrdiff_t b_column,
    {T} *restrict out, ptrdiff_t out_row)
{{
    enum {{ ROWS = sizeof(lanes_{S}) == 64 ? 8 : 6, COLUMNS = 2 * sizeof(lanes_{S}) / sizeof({T}), DEPTH = 128 }};
    lanes_{S} panel[DEPTH][2];
    for (int left = 0; left < columns; left += COLUMNS)
        for (int start = 0; start < inner; start += DEPTH) {{
            const int width = columns - left < COLUMNS ? columns - left : COLUMNS;
            const int depth = inner - start < DEPTH ? inner - start : DEPTH;
            for (int k = 0; k < depth; k++) {{
                {T} *to = ({T} *)panel[k];
                const {T} *from = b + (start + k) * b_row + left * b_column;
                if (b_column == 1 && width == COLUMNS)
                    memcpy(to, from, sizeof panel[k]);
                else
                    for (int j = 0; j < COLUMNS; j++)
                        to[j] = j < width ? from[j * b_column] : 0;
            }}
            for (int top = 0; top < rows; top += ROWS) {{
                const int height = rows - top < ROWS ? rows - top : ROWS;
                const {T} *row[ROWS];  // below the last row: the last row again, whose sums are not kept
                for (int i = 0; i < ROWS; i++)
                    row[i] = a + (top + (i < height ? i : height - 1)) * a_row + start * a_column;
                lanes_{S} sum[ROWS][2] = {{{{{{0}}}}}};
                for (int k = 0; k < depth; k++)
                    for (int i = 0; i < ROWS; i++) {{
                        const {T} factor = row[i][k * a_column];
                        sum[i][0] += factor * panel[k][0];
                        if (width > COLUMNS / 2)
                            sum[i][1] += factor * panel[k][1];
                    }}
                for (int i = 0; i < height; i++) {{
                    {T} *to = out + (top + i) * out_row + left;
                    const {T} *found = (const {T} *)sum[i];
                    for (int j = 0; j < width; j++)
                        to[j] = start ? to[j] + found[j] : found[j];
                }}
            }}
        }}
}}"""
_PLAIN = {
    "clamp_index": """static inline int clamp_index(int64_t index, int64_t largest)
{
    return (int)(index < 0 ? 0 : index > largest ? largest : index);
}""",
    "threefry2x32": """// Threefry with 2 x 32 bits and 20 rounds: the random numbers of JAX.
static inline void threefry2x32(uint32_t key_0, uint32_t key_1, uint32_t *x_0, uint32_t *x_1)
{
    static const int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
    const uint32_t keys[3] = {key_0, key_1, key_0 ^ key_1 ^ 0x1BD11BDAu};
    uint32_t a = *x_0 + keys[0], b = *x_1 + keys[1];
    for (uint32_t group = 0; group < 5; group++) {
        for (int round = 0; round < 4; round++) {
            const int by = rotations[group % 2][round];
            a += b;
            b = (b << by | b >> (32 - by)) ^ a;
        }
        a += keys[(group + 1) % 3];
        b += keys[(group + 2) % 3] + group + 1;
    }
    *x_0 = a;
    *x_1 = b;
}""",
}
_NEEDS = {"order": "is_before", "order_down": "is_above"}
"""The helper function that a sort calls. It is not `qsort`, which is unstable and takes no keys of another array."""


def helper_text(name: str, dtype: str = "") -> str:
    if name in _PLAIN:
        return _PLAIN[name]
    kind, ending = C_TYPES[dtype], suffix(dtype)
    if name == "total_order":
        return _TOTAL_ORDER.format(T=kind, S=ending, bits=64 if kind == "double" else 32)
    if name == "matmul":
        return _PRODUCT.format(T=kind, S=ending)
    if name == "integer_power":
        return _POWER.format(T=kind, S=ending)
    if name in _NEEDS:
        first = "the smallest first, NaN last" if name == "order" else "NaN first, then the largest"
        return _ORDER.format(name=name, T=kind, S=ending, test=_NEEDS[name], first=first)
    if name.startswith("from_"):
        return _conversion(name.removeprefix("from_"), dtype)
    if name == "bits_of":
        return f"""static inline {kind} bits_of_{ending}(const void *item)
{{
    {kind} result;
    memcpy(&result, item, sizeof result);
    return result;
}}"""
    # One text for all types: a file contains only the types that it uses.
    is_unsigned = kind.startswith("uint") or kind == "bool"
    table = _FLOATS if is_float(dtype) else {**_INTEGERS, **(_UNSIGNED if is_unsigned else {})}
    unsigned = f"u{kind}" if kind.startswith("int") else kind
    width = 0 if is_float(dtype) else bits(dtype)
    signed = kind.removeprefix("u")
    body = table[name].format(T=kind, U=unsigned, signed=signed, bits=width, f="f" if kind == "float" else "")
    result = "bool" if name in _BOOL_RESULT else kind
    parameters = f"{kind} a" if name in _ONE_ARGUMENT else f"{kind} a, {kind} b"
    return f"static inline {result} {name}_{ending}({parameters})\n{{\n    {body}\n}}"


def _conversion(source: str, target: str) -> str:
    # As in JAX, NaN becomes 0, and a float out of the range of the dtype becomes the smallest or largest integer.
    kind, source_kind = C_TYPES[target], C_TYPES[source]
    low = "0" if kind.startswith("u") else f"INT{bits(target)}_MIN"
    high = f"{'U' if kind.startswith('u') else ''}INT{bits(target)}_MAX"
    return f"""static inline {kind} {suffix(target)}_from_{source_kind}({source_kind} a)
{{
    return a != a ? 0 : a <= ({source_kind}){low} ? {low} : a >= ({source_kind}){high} ? {high} : ({kind})a;
}}"""


def helper_names() -> Iterator[str]:
    names = [*_FLOATS, *_INTEGERS, "integer_power", *_NEEDS, "bits_of", "total_order", "matmul", "lanes"]
    yield from _PLAIN
    for dtype in C_TYPES:
        yield from (f"{name}_{suffix(dtype)}" for name in names)
        yield from (f"{suffix(dtype)}_from_{kind}" for kind in ("float", "double"))


class Helpers:
    """The helper functions that a file uses, in the order of first use."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def use(self, name: str, dtype: str = "") -> str:
        if name in _NEEDS:
            self.use(_NEEDS[name], dtype)
        full = f"{name}_{suffix(dtype)}" if dtype else name
        if name.startswith("from_"):
            full = f"{suffix(dtype)}_from_{C_TYPES[name.removeprefix('from_')]}"
        if full not in self.texts:
            self.texts[full] = helper_text(name, dtype)
        return full
