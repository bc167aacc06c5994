"""A program as data: it matches the schema, and any JSON reader can read it."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax_programs import spec
from jsonschema import Draft202012Validator

from benchmarks.corpus import corpus
from mithril_nb.inspection import inspect_function as inspect

SCHEMA = json.loads((files("mithril_nb.inspection") / "schema.json").read_text(encoding="utf-8"))
TRACED = ("python", "graph", "jaxpr")


def closed(schema):
    """Return the schema with unknown fields forbidden, so that every field must be documented."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    return {"additionalProperties": False, **found} if isinstance(found.get("properties"), dict) else found


def checked(text) -> dict[str, Any]:
    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    data = json.loads(text, parse_constant=refuse)
    assert list(Draft202012Validator(closed(SCHEMA)).iter_errors(data)) == []
    return data


def test_the_schema_is_a_schema():
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    "name",
    ["MLP, train step", "LSTM by scan, forward", "while, forward", "ensemble by vmap, forward", "Adam alone",
     "mixture of experts, forward", "remat, gradient", "LeNet, forward", "hessian"],
)  # fmt: skip
def test_programs_match_the_schema(name):
    fn, args = corpus()[name]()
    data = checked(inspect(fn, *args).to_json(*TRACED, passes=False))
    assert [stage["name"] for stage in data["stages"]] == list(TRACED)
    ids = {one["id"] for one in data["equations"]} | {f"arg{at}" for at in range(len(data["inputs"]))}
    assert {id for stage in data["stages"] for one in stage["instructions"] for id in one["equations"]} <= ids


def test_all_stages_and_passes_match_the_schema():
    program = inspect(lambda x: jnp.tanh(x) * 2 + x.sum(), spec(4, 4))
    data = checked(program.to_json())
    assert [stage["name"] for stage in data["stages"]] == [*program.stages]
    assert [one["number"] for one in data["passes"]] == list(range(len(data["passes"])))
    assert data["passes"]
    assert set(data["elapsed"]) == {"trace", "lower", "compile"}


def test_untraceable_program_states_the_reason():
    data = checked(inspect(lambda x: x @ x, spec(2, 3)).to_json())
    assert data["equations"] == data["passes"] == []
    assert all(stage["unavailable"].startswith("TypeError") for stage in data["stages"])


def test_nan_and_infinity_are_written_as_strings():
    program = inspect(lambda x: jax.lax.reduce(x, -jnp.inf, jax.lax.max, (0,)) + jnp.nan, spec(3))
    data = checked(program.to_json("jaxpr", passes=False))
    assert {value for one in data["equations"] for value in one["constants"]} >= {"nan"}


def test_names_with_invalid_unicode_can_be_written():
    def fn(x):
        with jax.named_scope("\ud800"):
            return x + 1

    checked(inspect(fn, spec(2)).to_json("jaxpr", passes=False).encode("utf-8").decode("utf-8"))
