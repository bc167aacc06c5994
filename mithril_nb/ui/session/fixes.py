"""Buttons that mend a problem: commands that were tried on the design, and lead to a model without the problem."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from mithril_nb.errors import Diagnostic, MithrilError, short_repr
from mithril_nb.graph.edit import inner_graph, node_of
from mithril_nb.graph.paths import join_path, split_path
from mithril_nb.graph.records import BOUNDARY, Block, Endpoint, LogicalGraph
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models.fields import fields_of
from mithril_nb.models.registry import KINDS
from mithril_nb.train.optimizers import DEFAULT_RATES
from mithril_nb.ui.session.analysis import Analysis
from mithril_nb.ui.session.commands import Fix, ProblemData, problem_data
from mithril_nb.ui.session.design import EDITS
from mithril_nb.ui.session.train_settings import TRAINING_FIELDS

# Name and arguments of a command.
Request = tuple[str, Mapping[str, Any]]
# Number of blocks that are inferred for the buttons of a design, at about 0.1 ms each.
_MOST_INFERRED = 3_000
_MOST_COMMANDS = 40  # tried for one problem, or 0.1 s for a small model
_NUMBER = re.compile(r"(?<![\w.])-?\d{1,9}(?!\w|\.\d)")
_DIFFERENT = re.compile(r"axis \S+: (\d{1,9}) (?:!=|<) (\d{1,9})(?!\d)")
_FROM_TO = re.compile(r"from (-?\d{1,9}) to (-?\d{1,9})")
_OF_DATA = "The data comes from the notebook cell that opens the workbench: correct it there, and run the cell again."


def problem_with_fix(problem: Diagnostic, analysis: Analysis, failed: Request | None = None) -> ProblemData:
    """Return a problem with the button `fix`, or with a sentence. `failed` is the command that reported it."""
    key = problem, short_repr(failed, 2_000)
    if key not in analysis.fixes:
        cause = next((other for other in analysis.problems if problem.summary.endswith(other.summary)), problem)
        analysis.fixes[key] = _Search(cause, analysis, failed).best()
    data, fix = problem_data(problem), analysis.fixes[key]
    advice = data["advice"] or (_OF_DATA if problem.code == "DataError" else "")
    return {**data, "advice": "" if fix else advice, "fix": fix}


@dataclass(frozen=True)
class _Search:
    problem: Diagnostic
    analysis: Analysis
    failed: Request | None

    def best(self) -> Fix | None:
        """Return the first command that solves the problem; if none does, that with the fewest other problems."""
        before, others = self.analysis.problems, list[tuple[int, Fix]]()
        size = 1 + sum(1 for _ in self.graph.walk())
        for command, args in islice(self.commands(), _MOST_COMMANDS):
            with suppress(Exception):  # the commands are guesses, with values that may not even have a text
                # A setting of training cannot be tried, and the advice for an open input was computed for the model.
                if command not in EDITS or self.problem.code == "UnconnectedPortError":
                    return self.fix(command, args, None)
                if self.analysis.inferred_for_fixes > _MOST_INFERRED:
                    break
                self.analysis.inferred_for_fixes += size
                after = self.analysis.with_design(EDITS[command](self.analysis.design, **args).design)
                fix = self.fix(command, args, after)
                if self.problem in after.problems or (self.problem.code == "Memory" and after.warning):
                    continue
                if len(after.problems) <= len(before) - (self.problem in before):
                    return fix
                others.append((len(after.problems), fix))
        return min(others, key=lambda other: other[0], default=(0, None))[1]

    def fix(self, command: str, args: Mapping[str, Any], after: Analysis | None) -> Fix:
        """Return the button of a command. Its hint is the shape of the block after it."""
        path = str(args.get("path") or str(args.get("target")).rpartition(".")[0])
        specs = after.inference.blocks.get(path) if after else None
        shapes = [str(spec) for spec in specs.outputs.values() if spec is not None] if specs else []
        hint = f"{path} then returns {', '.join(shapes)}" if shapes else ""
        return Fix(label=_label(command, args), command=command, args=dict(args), hint=hint)

    # Commands that may solve the problem, likely ones first

    @property
    def graph(self) -> LogicalGraph:
        return self.analysis.design.graph

    def commands(self) -> Iterator[Request]:
        if self.problem.summary.startswith("validation data"):
            return  # another model would not fit the data
        shape, needed = self.sizes_of_source(), self.needed()
        is_input = self.problem.edge is not None and "." not in self.problem.edge[0]
        if is_input and len(shape) > 2 and shape[-1] in needed and shape[1] == shape[-2] != shape[-1]:
            yield self.channels_first()
        yield from self.of_value()
        # Advice for a block inside another would make the outer one a plain group.
        steps = (self.of_code, self.of_difference)
        for step in steps[::-1] if "/" in self.problem.block else steps:
            yield from step()
        yield from self.of_data()
        if self.problem.code == "Memory":
            yield from self.smaller()
        rates = [text.split()[0] for label, text in self.problem.facts if label == "learning rate"]
        for rate in rates if self.problem.code == "TrainingError" else ():
            usual = DEFAULT_RATES.get(str(self.analysis.settings.values["optimizer"]), float(rate))
            yield "resume", {"learning_rate": float(f"{min(float(rate) / 10, usual):g}")}
        if self.problem.code == "ShapeError":
            steps = (self.of_sizes, self.conversions)
            is_of_rank = any(text.startswith("rank") for _, text in self.problem.facts)
            for step in steps[::-1] if is_of_rank else steps:
                yield from step()

    def of_code(self) -> Iterator[Request]:
        """Commands for the advice in Python: calls of blocks, and arguments."""
        path, (failed, sent) = self.problem.block, self.failed or ("", {})
        for name, values, options in _calls(self.problem.advice):
            if name == "do" and ... not in options.values():
                yield str(values[0]), options
            elif name in ("cast", "astype"):
                for target in self.readers():
                    yield _inserted("Cast", target, dtype=values[0])
            elif name in KINDS:
                kind = fields_of(KINDS[name])
                names = [field.name for field in kind]
                attributes = {**dict(zip(names, values, strict=False)), **options}
                ends = [path] if path else [at for at, node in self.graph.walk() if node.block.kind == name][-1:]
                for at in ends:
                    defaults = {field.name: field.default for field in kind if field.name not in attributes}
                    for key, value in {**attributes, **defaults}.items():
                        if value is not ... and self.block_at(at).options.get(key) != value:
                            yield "set_attribute", {"path": at, "name": key, "value": value}
            for key, value in {} if name else options.items():
                if value is ...:
                    continue
                if key == "shapes":
                    if self.problem.code != "ShapeError" or not self.analysis.has_data:
                        yield from (("set_shape", {"name": port, "shape": shape}) for port, shape in value.items())
                elif failed and key in sent:
                    yield failed, {**sent, key: value}
                elif key in ("loss", "output"):
                    yield f"set_{key}", {key: value}
                elif failed == "set_learning_rate":
                    yield failed, {"value": value}
                elif key in TRAINING_FIELDS:
                    yield "set_training", {"name": key, "value": value}
                elif path:
                    yield "set_attribute", {"path": path, "name": key, "value": value}

    def of_value(self) -> Iterator[Request]:
        """The number in a text that was typed as an attribute, and the nearest number in the range of the attribute."""
        command, args = self.failed or ("", {})
        path, value = args.get("path"), args.get("value")
        if command != "set_attribute" or not isinstance(path, str):
            return
        block = self.block_at(path)
        for field in fields_of(KINDS[block.kind]) if block.kind in KINDS else ():
            if field.name == args.get("name") and isinstance(value, str):
                yield from ((command, {**args, "value": int(number)}) for number in re.findall(r"\d{1,9}", value))
            elif (
                field.name == args.get("name")
                and field.type == "float"
                and field.range
                and isinstance(value, int | float)
            ):
                yield command, {**args, "value": min(max(value, field.range.least), field.range.most)}

    def of_data(self) -> Iterator[Request]:
        """Commands for data that does not fit: Flatten before the first Linear, and more rows of an embedding."""
        specs = self.analysis.inference.inputs.values()
        if "shape of the labels does not match" in self.problem.summary:
            linear = [path for path, node in self.graph.walk() if node.block.kind == "Linear"]
            if linear and all(str(spec.dtype).startswith(("float", "bfloat")) for spec in specs):  # no tokens
                yield _inserted("Flatten", f"{linear[0]}.input")
        ranges = [_FROM_TO.findall(text) for _, text in self.problem.facts]
        if (
            self.problem.code == "DataError"
            and "indices out of range" in self.problem.summary
            and int(ranges[0][0][0]) >= 0
        ):
            (_, most), (_, limit) = ranges[0][0], ranges[1][0]
            for path, node in self.graph.walk():
                yield from self.with_numbers(path, node.block, [int(limit) + 1], [int(most) + 1])

    def smaller(self) -> Iterator[Request]:
        """Smaller sizes of the block with the largest parameter."""
        path = self.problem.block
        sizes = [size for size in self.block_at(path).options.values() if type(size) is int and size > 1]
        for power in range(max(sizes, default=1).bit_length() - 1, 3, -1):
            yield from self.with_numbers(path, self.block_at(path), [max(sizes)], [1 << power])

    def of_difference(self) -> Iterator[Request]:
        """Attributes that are one of two sizes that differ, set to the other."""
        for _, text in self.problem.facts if self.problem.code == "ShapeError" else ():
            for pair in _DIFFERENT.findall(text):
                for at, block in self.around():
                    yield from self.with_numbers(at, block, [*map(int, pair)], [*map(int, pair)])

    def of_sizes(self) -> Iterator[Request]:
        """Attributes that are one of the sizes in the message, set to another of these sizes."""
        texts = (self.problem.advice, *(text for _, text in self.problem.facts))
        numbers = list(dict.fromkeys(int(number) for text in texts for number in _NUMBER.findall(text)))
        path, blocks = self.problem.block, list(self.around())
        for at, block in blocks:
            yield from self.with_numbers(at, block, numbers, numbers)
        for at, block in blocks:  # two branches of one kind that differ in another attribute, such as the stride
            for other_path, other in blocks:
                if other_path != at and other.kind == block.kind:
                    for key, value in other.options.items():
                        if block.options.get(key) != value:
                            yield "set_attribute", {"path": at, "name": key, "value": value}
        shape = self.block_at(path).options.get("shape")
        sizes = [*shape] if isinstance(shape, tuple) else []
        axes = range(len(sizes) - 1, -1, -1)
        for new in (*([*sizes[:at], -1, *sizes[at + 1 :]] for at in axes), *([*sizes[:at], -1] for at in axes)):
            yield "set_attribute", {"path": path, "name": "shape", "value": new}
        for field in fields_of(KINDS[kind]) if (kind := self.block_at(path).kind) in KINDS else ():
            if not field.is_required and self.block_at(path).options.get(field.name) != field.default:
                yield "set_attribute", {"path": path, "name": field.name, "value": field.default}

    def conversions(self) -> Iterator[Request]:
        """Blocks between the output and the input that do not fit each other."""
        if not self.problem.edge:
            return
        target, shape = self.problem.edge[1], self.sizes_of_source()
        rank = next(
            (len(next(iter(o["shapes"].values()))) for *_, o in _calls(self.problem.advice) if "shapes" in o), 0
        )
        if len(shape) == 2 and rank > 2 and isinstance(shape[1], int) and shape[1] < 2**31:
            side = round(shape[1] ** (1 / (rank - 2)))
            sides = [side] * (rank - 2) if side ** (rank - 2) == shape[1] else [1] * (rank - 3) + [shape[1]]
            yield _inserted("Reshape", target, shape=[-1, 1, *sides])
        if len(shape) > 2:
            yield _inserted("Flatten", target)
            yield self.channels_first()
        for size in reversed(self.needed()):
            if size > 0:
                yield _inserted("Linear", target, dimension=size)

    def channels_first(self) -> Request:
        assert self.problem.edge
        last = len(self.sizes_of_source()) - 1
        return _inserted("Transpose", self.problem.edge[1], axes=[0, last, *range(1, last)])

    # Blocks and sizes

    def needed(self) -> list[int]:
        """The numbers that an input needs."""
        texts = [text for _, text in self.problem.facts if text.startswith("needs")]
        return [int(number) for text in texts for number in _NUMBER.findall(text)]

    def sizes_of_source(self) -> tuple[Any, ...]:
        path, _, port = self.problem.edge[0].rpartition(".") if self.problem.edge else ("", "", "")
        inferred = self.analysis.inference
        specs = inferred.blocks[path].outputs if path in inferred.blocks else inferred.inputs
        spec = specs.get(port)
        return spec.shape if isinstance(spec, TensorSpec) else ()

    def readers(self) -> Iterator[str]:
        """The input at fault; for data, the inputs of blocks that read the model's input."""
        if self.problem.edge:
            yield self.problem.edge[1]
        for name in re.findall(r"input '(\w+)'", self.problem.summary):
            yield from map(str, self.graph.targets_of.get(Endpoint(BOUNDARY, name), ()))

    def level(self, path: str) -> tuple[LogicalGraph, str, str]:
        """Return the graph that contains a block, the path of this graph, and the block's name."""
        *parent, name = split_path(path)
        graph, at = self.graph, ""
        for part in parent:
            inner = node_of(graph, part).block.graph
            graph, at = inner if inner is not None else inner_graph(graph, part), join_path(at, part)
        return graph, at, name

    def block_at(self, path: str) -> Block:
        with suppress(MithrilError, ValueError):
            graph, _, name = self.level(path)
            return node_of(graph, name).block
        return Block("", (), (), ())

    def around(self) -> Iterator[tuple[str, Block]]:
        """The block at fault; the blocks around it, the outermost first; blocks that feed it; blocks inside it."""
        path = self.problem.block
        parts = split_path(path)
        ends = ["/".join(join_path("", part) for part in parts[:depth]) for depth in range(1, len(parts) + 1)]
        own = self.problem.edge[0].rpartition(".")[0] if self.problem.edge else ""
        queue, seen = [*([own] if own else []), path], dict.fromkeys(ends)
        while queue and len(seen) < 12:
            seen.setdefault(at := queue.pop(0))
            with suppress(MithrilError, ValueError):
                graph, parent, name = self.level(at)
                for port in node_of(graph, name).block.inputs:
                    source = graph.source_of.get(Endpoint(name, port.name))
                    if source is not None and source.node:
                        queue.append(join_path(parent, source.node))
        inside = [at for at, _ in self.graph.walk() if at.startswith(f"{path}/")]
        yield from ((at, self.block_at(at)) for at in dict.fromkeys((*seen, *inside[:12])))

    def with_numbers(self, path: str, block: Block, old: list[int], new: list[int]) -> Iterator[Request]:
        """Commands that set an attribute with one of the numbers `old` to one of the numbers `new`."""
        for key, value in block.options.items():
            for number in new if type(value) is int and value in old else ():
                if number != value:
                    yield "set_attribute", {"path": path, "name": key, "value": number}


def _calls(advice: str) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """Yield the calls in advice as name, arguments and named arguments; named arguments alone have the name `""`."""
    for part in advice.split("  #"):
        text = part.removeprefix(" or ").strip()
        for code in (text, f"_({text})"):
            with suppress(SyntaxError, UnicodeEncodeError, ValueError):  # half of a surrogate pair, which JSON can hold
                call = ast.parse(code, mode="eval").body
                if isinstance(call, ast.Call):
                    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
                    options = {str(keyword.arg): _literal(keyword.value) for keyword in call.keywords}
                    yield name.strip("_"), [_literal(value) for value in call.args], options
                    if name == "compile":
                        yield "", [], options
                    break


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ...


def _inserted(kind: str, target: str, **attributes: Any) -> Request:
    return "place_block", {"kind": kind, "target": target, **({"attributes": attributes} if attributes else {})}


_LABELS = {
    "connect": "Connect {source} to {target}",
    "expand": "Open {path}",
    "rename": "Rename {path} to {name}",
    "set_attribute": "Set {name} of {path} to {value}",
    "set_learning_rate": "Set the learning rate to {value}",
    "resume": "Resume with learning rate {learning_rate}",
    "set_loss": "Use {loss}",
    "set_output": "Train on {output}",
    "set_training": "Set {name} to {value}",
    "add_block": "Add {kind}",
    "place_block": "Add {kind}",
    "use_data_of": "Train on generated data",
}


def _label(command: str, args: Mapping[str, Any]) -> str:
    texts = {key: _text(value) for key, value in args.items()}
    if command == "set_shape":
        return f"Set the shape to {' × '.join(map(str, args['shape'])) or 'a scalar'}"
    if command == "place_block" and args.get("target"):
        own = ", ".join(_text(value) for value in args.get("attributes", {}).values())
        return f"Insert {args['kind']}{f' ({own})' if own else ''} before {args['target'].rpartition('.')[0]}"
    if command in ("set_loss", "set_training"):
        texts = {key: text.replace("_", " ") for key, text in texts.items()}
    if command == "set_attribute" and args["value"] is None:
        return f"Clear {args['name']} of {args['path']}"
    if command in _LABELS:
        return _LABELS[command].format(**texts)
    rest = ", ".join(f"{key} {text}" for key, text in texts.items())
    return f"{command.replace('_', ' ').capitalize()}{rest and f' with {rest}'}"


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
