"""Descriptions of blocks for the palette and the inspector."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from mithril_nb.graph.paths import join_path, parameter_name
from mithril_nb.graph.records import Block, BlockSpecs, LogicalGraph
from mithril_nb.graph.spec import Spec, TensorSpec
from mithril_nb.models.fields import Field, fields_of
from mithril_nb.models.op import OPS
from mithril_nb.models.registry import KINDS
from mithril_nb.models.shape_inference.flat import flat
from mithril_nb.models.shape_inference.infer import Inference
from mithril_nb.ui.session.facts import facts_of

_COMMON = (
    "Linear", "Relu", "Gelu", "Sigmoid", "Tanh", "Softmax", "Conv2d", "MaxPool2d", "Flatten", "BatchNorm2d",
    "LayerNorm", "Dropout", "Embedding", "MultiHeadAttention", "TransformerBlock", "MLP", "Add",
)  # fmt: skip
"""The most frequent kinds, shown first."""
_ORDER = ("Common", "Layers", "Activations", "Composites", "Arithmetic", "Shape")
_LAST = "As in Mithril"
"""Category of Mithril's other names for blocks, shown last."""


def palette() -> tuple[dict[str, str], ...]:
    """Return every kind of block with its category, summary and formula, common ones first."""
    return tuple(
        {
            "kind": kind,
            "category": _category(kind, made),
            "summary": summary(made),
            "formula": _metadata(made, "formula"),
        }
        for kind, made in sorted(KINDS.items(), key=lambda item: _place(*item))
        if _metadata(made, "category")
    )


def _category(kind: str, made: type) -> str:
    return "Common" if kind in _COMMON else _metadata(made, "category")


def _place(kind: str, made: type) -> tuple[bool, int, str, int, str]:
    category = _category(kind, made)
    rank = _ORDER.index(category) if category in _ORDER else len(_ORDER)
    return category == _LAST, rank, category, _COMMON.index(kind) if kind in _COMMON else 0, kind


def describe_blocks(graph: LogicalGraph, inference: Inference, hues: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """Return the inspector's data of every block, by path."""
    starts = {name: note.initializer for name, note in flat(graph).notes.items() if note.initializer}
    return {
        path: _describe(path, node.name, node.block, inference, hues.get(path.split("/")[0], 0), starts)
        for path, node in graph.walk()
    }


def summary(constructor: type) -> str:
    """Return the first sentence of a block's docstring."""
    return (inspect.getdoc(constructor) or "").partition("\n")[0]


def _describe(
    path: str, name: str, block: Block, inference: Inference, hue: int, starts: Mapping[Any, str]
) -> dict[str, Any]:
    specs = inference.blocks.get(path, BlockSpecs())
    constructor = KINDS.get(block.kind)
    return {
        "path": path,
        "name": name,
        "kind": block.kind,
        "hue": hue,
        "doc": summary(constructor) if constructor else "A model composed of blocks.",
        "formula": _metadata(constructor, "formula") if constructor else "",
        "fields": [_field(field, block) for field in fields_of(constructor)] if constructor else [],
        "inputs": [{"port": port.name, "shape": _text(specs.inputs.get(port.name))}
                   for port in block.inputs if port.role == "data"],
        "outputs": [{"port": port.name, "shape": _text(specs.outputs.get(port.name))} for port in block.outputs],
        "params": [
            {"name": parameter_name(path, port), "shape": (str(spec.shape) if spec else "unknown")
             + (f", initialized with {starts[key]}" if (key := parameter_name(path, port)) in starts else ""),
             "count": spec.size if spec else None}
            for port, spec in specs.params.items()
        ],
        "facts": facts_of(path, block, specs),
        "children": [join_path(path, child.name) for child in block.graph.nodes] if block.graph else [],
    }  # fmt: skip


def _field(field: Field, block: Block) -> dict[str, Any]:
    value = block.options.get(field.name, field.default)
    return {
        "name": field.name,
        "type": field.type,
        "value": list(value) if isinstance(value, tuple) else value,
        "default": list(field.default) if isinstance(field.default, tuple) else field.default,
        "min": field.range.least if field.range else None,
        "max": field.range.most if field.range else None,
        "choices": list(field.choices) or None,
        "doc": field.doc,
        "optional": field.is_optional,
    }


def _text(spec: Spec | None) -> str:
    if spec is None or (isinstance(spec, TensorSpec) and spec.shape == ("...",)):
        return "unknown"
    return str(spec).replace("'...'", "…").replace("'", "")


def _metadata(constructor: type, name: str) -> str:
    return getattr(constructor, name, "")


assert OPS, "importing the block library registers its ops"
