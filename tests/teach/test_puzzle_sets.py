"""The thirty puzzles: each accepts three different solutions, and rejects two wrong ones with a reason."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from puzzle_solutions import SOLUTIONS

import mithril_nb as ml
from mithril_nb.errors import UnknownOptionError

PUZZLES = [puzzle for name in ("trace", "transform", "compile") for puzzle in ml.teach.puzzles(name)]


def test_there_are_ten_in_each_set() -> None:
    assert [len(ml.teach.puzzles(name)) for name in ("trace", "transform", "compile")] == [10, 10, 10]
    assert list(SOLUTIONS) == [puzzle.name for puzzle in PUZZLES]
    assert all(puzzle.text for puzzle in PUZZLES)
    with pytest.raises(UnknownOptionError, match='"trace"'):
        ml.teach.puzzles("tracing")


@pytest.mark.parametrize("puzzle", PUZZLES, ids=lambda puzzle: puzzle.name)
def test_right_solutions_are_accepted_and_wrong_ones_rejected(puzzle: ml.teach.Puzzle) -> None:
    right, wrong = SOLUTIONS[puzzle.name]
    assert len(right) == 3
    assert [puzzle.check(solution).reason for solution in right] == ["", "", ""]
    assert len(wrong) == 2
    results = [puzzle.check(solution) for solution in wrong]
    assert [result.right for result in results] == [False, False]
    assert all(len(result.reason) > 20 for result in results)


@pytest.mark.parametrize(("name", "wrong"), [
    ("embedded", lambda table, ids: table[:10][ids]),
    ("halvings", lambda n: jnp.searchsorted(2 ** jnp.arange(10), n, side="right").astype("int32")),
    ("halvings", lambda n: jnp.int32(int(n).bit_length())),
    ("mean_of_first", lambda x, count: x[: int(count)].mean(axis=0)),
    ("mean_of_first", lambda x, count: jnp.where(jnp.arange(16)[:, None] < min(count, 9), x, 0).sum(0) / count),
    ("chosen", lambda x, is_sine: jnp.sin(x) if is_sine else jnp.cos(x)),
    ("chosen", lambda x, is_sine: jnp.sin(x)),
    ("scaled", lambda x, rate: x * float(rate)),
])  # fmt: skip
def test_more_wrong_solutions(name: str, wrong: Any) -> None:
    puzzle = next(puzzle for puzzle in PUZZLES if puzzle.name == name)
    assert [puzzle.check(wrong).right for _ in range(4)] == [False] * 4
