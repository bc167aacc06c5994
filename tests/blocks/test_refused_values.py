"""Invalid values are rejected by the constructor: the whole text."""

import pytest

from mithril_nb.errors import MithrilError
from mithril_nb.models import Add, Constant, Indexer, IOKey, Model

NUMBERS = """
    needs  a number, or nested lists of numbers, of equal length at each depth
    Try: Constant([[1.0, 2.0], [3.0, 4.0]])"""
INDEX = """
    Try: Indexer((0, ("slice", 1, None, None)))"""
CASES = [
    (lambda: Constant([[1, 2], [3]]), f"Constant cannot take value=((1, 2), (3,)).{NUMBERS}"),
    (lambda: Constant([[1], 2]), f"Constant cannot take value=((1,), 2).{NUMBERS}"),
    (lambda: Constant("abc"), f"Constant cannot take value='abc'.{NUMBERS}"),
    (lambda: Constant([None]), f"Constant cannot take value=(None,).{NUMBERS}"),
    (lambda: Model().__ior__(Add()(left="x", right=[[1], []])), f"Constant cannot take value=((1,), ()).{NUMBERS}"),
    (
        lambda: Constant([1, 2**40]),
        """Constant cannot hold 1099511627776 in int32.
    needs  whole numbers from -2147483648 to 2147483647
    Try: Constant(1099511627776, dtype="float32")""",
    ),
    (
        lambda: Constant(-1, dtype="uint8"),
        """Constant cannot hold -1 in uint8.
    needs  whole numbers from 0 to 255
    Try: Constant(-1, dtype="float32")""",
    ),
    (
        lambda: Constant(10**400, dtype="float32"),
        """Constant cannot hold 100000000000000000000... in 64 bits.
    needs  whole numbers from -9223372036854775808 to 9223372036854775807
    Try: Constant(1e30)""",
    ),
    (
        lambda: Indexer("a"),
        f"Indexer cannot take index='a'.\n    needs  whole numbers, slices, None, '...' and lists of numbers{INDEX}",
    ),
    (
        lambda: Indexer(("slice", "a", None, None)),
        "Indexer cannot take index=('slice', 'a', None, None).\n"
        f"    needs  whole numbers, slices, None, '...' and lists of numbers{INDEX}",
    ),
    (
        lambda: Indexer(1.5),
        "Indexer cannot take index=1.5.\n"
        f"    needs  an index of whole numbers, slices, None, ... and arrays of numbers, not 1.5{INDEX}",
    ),
    (
        lambda: IOKey(3),  # pyright: ignore
        """IOKey cannot take name=3.
    needs  a string, the name of a connection
    Try: IOKey("x")  # or IOKey(value=3.0) for a constant""",
    ),
]


@pytest.mark.parametrize(("make", "text"), CASES, ids=lambda one: one.splitlines()[0] if isinstance(one, str) else "")
def test_an_invalid_value_is_rejected_by_the_constructor(make, text: str):
    with pytest.raises(MithrilError) as caught:
        make()
    assert type(caught.value).__name__ == "UnknownOptionError"
    assert str(caught.value) == text


def test_the_limits_are_accepted():
    for value in (2**31 - 1, -(2**31), [], [[]], True, [1, 2.5, 2**40], float("inf")):
        Constant(value)
    Constant(2**40, dtype="float32")
    Constant(2**32 - 1, dtype="uint32")
    Indexer(("...", None, 0, ("slice", 1, None, None), (0, 1)))
