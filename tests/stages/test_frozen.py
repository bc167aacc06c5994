"""Dataclasses with `quick_to_make` behave like any frozen dataclass."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, dataclass, field, replace

import pytest

from mithril_nb.stages.records import quick_to_make


@dataclass(frozen=True)
class Plain:
    a: int
    b: tuple[int, ...] = ()
    c: str = field(default="c", repr=False)


@quick_to_make
@dataclass(frozen=True)
class Quick:
    a: int
    b: tuple[int, ...] = ()
    c: str = field(default="c", repr=False)


@pytest.mark.parametrize(
    "make", [lambda cls: cls(1, (2,), "d"), lambda cls: cls(1), lambda cls: cls(b=(3,), a=2), lambda cls: cls(1, c="e")]
)
def test_quick_dataclass_equals_a_plain_one(make: Callable[[type], object]) -> None:
    plain, quick = make(Plain), make(Quick)
    assert asdict(quick) == asdict(plain)  # pyright: ignore[reportArgumentType]
    assert repr(quick) == repr(plain).replace("Plain", "Quick")
    assert hash(quick) == hash(plain)
    assert quick == make(Quick) == pickle.loads(pickle.dumps(quick)) == copy.deepcopy(quick)
    assert replace(quick, a=5) != quick  # pyright: ignore[reportArgumentType]
    with pytest.raises(FrozenInstanceError):
        quick.a = 2  # pyright: ignore[reportAttributeAccessIssue]


def test_the_signature_is_kept() -> None:
    assert str(inspect.signature(Quick)) == str(inspect.signature(Plain))


@pytest.mark.parametrize("args", [(), (1, (), "c", 4)])
def test_quick_dataclass_rejects_the_same_arguments(args: tuple[object, ...]) -> None:
    with pytest.raises(TypeError) as plain:
        Plain(*args)  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(TypeError) as quick:
        Quick(*args)  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert str(quick.value) == str(plain.value).replace("Plain", "Quick")
