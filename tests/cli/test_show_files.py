"""`show` and `report` of a file of StableHLO or HLO."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax_programs import spec
from transcript import read_transcript

import mithril_nb as ml

X, W = spec(2, 4), spec(4, 8)


def step(x: Any, w: Any) -> Any:
    with jax.named_scope("body"):
        return jnp.tanh(x @ w)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of each kind, in which the commands are run."""
    lowered = jax.jit(step).lower(X, W)
    (tmp_path / "step.mlir").write_text(lowered.as_text(debug_info=True))
    (tmp_path / "step.hlo").write_text(lowered.compile().as_text() or "")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_costs_of_stablehlo(printed) -> None:
    out = printed("show", "step.mlir", "--stage", "cost")
    assert "no analytic costs: this program was given as StableHLO text: it has no jaxpr" in out
    costs = json.loads(printed("show", "step.mlir", "--stage", "cost", "--json"))
    wanted = ml.inspect(step, X, W).costs("lowered", "compiled")
    for source in ("lowered", "compiled"):
        total = wanted.by_source[source].total
        found = costs["sources"][source]["total"]
        assert (found["flops"], found["bytes_accessed"]) == (total.flops, total.bytes_accessed)
    by_line = printed("show", "step.mlir", "--stage", "cost", "--by", "line")
    assert by_line.startswith("step: lowered, by line\n")
    assert costs["unavailable"] == {"analytic": "this program was given as StableHLO text: it has no jaxpr"}


def test_the_stages_of_hlo(printed, refused) -> None:
    out = printed("show", "step.hlo", "--stage", "hlo")
    assert out.rstrip() == ml.inspect(step, X, W).stage("hlo").text.rstrip()
    err = refused("show", "step.hlo", "--stage", "stablehlo")
    assert err == (
        "StageUnavailableError: stablehlo is not available: this program was given as HLO text: it has no StableHLO.\n"
    )


def test_lines_of_a_block_and_the_graph(printed) -> None:
    out = printed("show", "step.mlir", "--stage", "stablehlo", "--block", "body")
    assert [line.split()[3] for line in out.splitlines()][:2] == ["stablehlo.dot_general", "stablehlo.tanh"]
    out = printed("show", "step.mlir")
    assert [line.split()[0] for line in out.splitlines()][:4] == ["x", "w", "body", "stablehlo.dot_general"]


def test_a_report(run_cli, folder: Path) -> None:
    assert run_cli("report", "step.mlir", "-o", "step.html")[0] == 0
    page = (folder / "step.html").read_text(encoding="utf-8")
    assert "this program was given as StableHLO text: it has no jaxpr" in page
    assert "stablehlo.dot_general" in page


REFUSED = """
other.mlir
ModelFileError: cannot inspect 'other.mlir': it cannot be read.

step.mlir --arg 'f32[3]'
UnknownOptionError: 'step' takes no arguments=.

step.mlir --shape x=3
UnknownOptionError: 'step' takes no shapes=.

step.mlir --static x
UnknownOptionError: 'step' takes no static_argnames=.

step.mlir --program forward
UnknownOptionError: 'step' takes no program=.

step.hlo --passes
StageUnavailableError: program 'step' has no record of how XLA compiled it.
"""


@pytest.mark.parametrize(("command", "message"), read_transcript(REFUSED))
def test_invalid_files_and_options_are_rejected(refused, command: str, message: str) -> None:
    assert refused("show", *shlex.split(command)).startswith(message)
