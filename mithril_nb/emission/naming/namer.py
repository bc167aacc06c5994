"""Name the functions and arrays of a program that was divided into functions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from mithril_nb.emission.blocks import Divided
from mithril_nb.emission.naming.gradients import Gradients
from mithril_nb.emission.naming.names import UniqueNames, identifier
from mithril_nb.emission.program import EmittedProgram, Function, Number, Operand, Statement, Value, arrays
from mithril_nb.graph.paths import lineage, name_of
from mithril_nb.stages.records import Role
from mithril_nb.stages.trace import traced

# As in hand-written code, the forward function has the plain name.
_SUFFIXES = {"forward": "", "backward": "_backward", "update": "_update"}
_STEPS = "_steps"
_RESULT_NAMES = {
    "attention": "attended", "layer_norm": "normalized", "rms_norm": "normalized", "gelu": "activated",
    "gelu_tanh": "activated", "silu": "activated", "linear": "projected",
}  # fmt: skip
"""Names for the results of fused statements."""


class Namer:
    """Chooses a name for every function and array of a program, which is given as one function, and divided."""

    def __init__(
        self,
        main: Function,
        divided: Divided,
        constants: Mapping[Value, Any],
        params: set[Value],
        program: traced.Program,
        reserved: Iterable[str],
        fuse: Callable[[Function], Function],
    ):
        self._trace, self._ports, self._kinds, self._fuse = program.trace, program.ports, program.kinds, fuse
        self._received: dict[str, tuple[str, ...]] = {}  # names of a forward function's inputs
        self._main, self._divided, self._params = main, divided, params
        self._given = set(main.inputs) - params
        self._roles = {**main.roles, **dict.fromkeys(params)}  # a parameter named d_x is no gradient
        self._used_by: dict[Value, set[tuple[str, Role | None]]] = {}
        for statement in main.walk():
            for value in statement.reads:
                self._used_by.setdefault(value, set()).add((statement.block, statement.role))
        self._added = {
            value for statement in main.walk() if statement.primitive in ("add", "add_any") for value in statement.reads
        }
        self._results = self._names_of_results()
        self._meanings, self._gradients = _meanings(main), Gradients(main, self._roles, self._results)
        self._sources = self._sources_of_values()
        self._globals = UniqueNames(reserved)
        used = {*self._used_by, *main.outputs}
        self._constants = {
            value: replace(value, name=self._globals.new("constant")) for value in constants if value in used
        }
        self._arrays = {self._constants[value]: array for value, array in constants.items() if value in used}
        self._functions: dict[Function, Function] = {}
        self._local: dict[tuple[str, Operand], str] = {}  # names of arrays in the forward function of a block
        self._named: dict[Function, str] = {}
        self._forward: dict[str, str] = {}  # names of the forward functions, by block

    def program(self) -> EmittedProgram:
        trace, functions = self._trace, self._divided.functions
        self._named = {functions[-1]: self._globals.new(trace.name)}
        for function in sorted(functions[:-1], key=lambda function: function.block.count("/")):  # outer blocks first
            self._named[function] = name = self._globals.new(self._function_name(function))
            if function.role == "forward":
                self._forward.update(dict.fromkeys(self._paths(function), name))
        for function in functions:
            self._functions[function] = self._function(function)
        return EmittedProgram(trace.name, tuple(self._functions.values()), self._arrays, trace.inputs, trace.outputs)

    def _function_name(self, function: Function) -> str:
        path = function.block.split("/")
        name = identifier(name_of(path[-1]))
        if len(self._divided.blocks[function]) > 1:  # blocks/0 and blocks/1 share a function of their own
            name = re.sub(r"_\d+$", "", name)
        forward = next(filter(None, map(self._forward.get, self._paths(function))), None)
        if len(path) > 1 and name in self._named.values() and forward is None:
            name = f"{identifier(name_of(path[-2]))}_{name}"
        return (forward or name) + _SUFFIXES.get(function.role or "", "")

    def _names_of_results(self) -> dict[Operand, str]:
        # The new value of `w` in a train step is `new_w`, and its gradient `d_w`.
        params = {value.name for value in self._params}
        prefixes = {"backward": "d_", "update": "new_"}
        names: dict[Operand, str] = {}
        for value, leaf in zip(self._main.outputs, self._trace.outputs, strict=True):
            if value in names or value not in self._roles:
                continue
            key = leaf.keys[-1] if leaf.keys else "result"
            prefix = prefixes.get(self._roles[value] or "", "") if key in params else ""
            names[value] = prefix + (f"result_{key}" if key.isdigit() else key)
        return names

    def _function(self, function: Function) -> Function:
        scope = self._globals.inside()
        is_main = function is self._divided.functions[-1]
        names: dict[Operand, Value] = {**self._constants}

        def name(value: Value, hint: str) -> Value:
            if value not in names:
                names[value] = replace(value, name=scope.new(hint))
            return names[value]

        # Inputs first: in C and Python they are what a reader sees at the call.
        for value in function.inputs:
            name(value, value.name if is_main else self._name_of_input(function, value))
        output_names = {
            value: self._results.get(value, "result") if is_main else self._name_of_output(function, value)
            for value in arrays(function.outputs)
        }
        if function.role == "backward":  # the results choose their names before the arrays of earlier statements
            for value, text in output_names.items():
                name(value, text)
        new = self._body(function, names, name, output_names, function.block, {})
        paths = self._paths(function)
        if function.role == "forward":
            # The backward function of the block calls the same arrays by the same names.
            self._local |= {(function.block, old): new.name for old, new in names.items()}
            received = tuple([names[value].name for value in function.inputs if value not in self._params])
            self._received.update(dict.fromkeys(paths, received))
        ports = (*self._received.get(function.block, ()), *self._ports.outputs.get(function.block, ()))
        kind = self._kinds.get(function.block, "")
        blocks = tuple(dict.fromkeys(paths[1:]))
        return replace(new, name=self._named[function], blocks=blocks, ports=ports, kind=kind)

    def _body(
        self,
        function: Function,
        names: dict[Operand, Value],
        name: Callable[[Value, str], Value],
        output_names: Mapping[Value, str],
        block: str,
        items: Mapping[Value, str],
    ) -> Function:
        def use(operands: Iterable[Operand]) -> tuple[Operand, ...]:
            return tuple([operand if isinstance(operand, Number) else names[operand] for operand in operands])

        equations = self._divided.equations
        statements = [
            replace(statement, equations=equations.get(statement, statement.equations))
            for statement in function.statements
        ]
        # Fused statements need the equations of all blocks that share the function, so they come second.
        function = self._fuse(replace(function, statements=tuple(statements)))
        used = {*function.outputs, *(value for statement in function.statements for value in statement.reads)}
        inputs = tuple([name(value, items.get(value, value.name)) for value in function.inputs])
        statements = []
        for statement in function.statements:
            operands = use(statement.inputs)
            items = self._names_of_items(statement, names, block) if statement.primitive == "scan" else {}
            bodies = tuple([self._body(body, names, name, {}, block, items) for body in statement.bodies])
            hints = self._hints(statement, output_names, block, names)
            if statement.primitive == "scan":  # after its body, whose results have names now
                for index in range(statement["num_carry"], len(hints)):
                    step = bodies[0].outputs[index]
                    if hints[index] in ("stacked", "term") and isinstance(step, Value):
                        hints[index] = f"{step.name}{_STEPS}"
            outputs = tuple([
                name(value, hint) if value in used else replace(value, name="_")
                for value, hint in zip(statement.outputs, hints, strict=True)
            ])  # fmt: skip
            names.update(zip(statement.outputs, outputs, strict=True))
            note = self._note(statement, names)
            called = statement.function and self._functions[statement.function]
            statements.append(
                replace(statement, inputs=operands, outputs=outputs, bodies=bodies, function=called, note=note)
            )
        return replace(function, inputs=inputs, outputs=use(function.outputs), statements=tuple(statements))

    def _names_of_items(self, loop: Statement, names: Mapping[Operand, Value], block: str) -> dict[Value, str]:
        # An item of `x_steps` is `x`, and an item of `x` is `x_step`.
        (body,), count = loop.bodies, loop["num_carry"]
        hints = {value: self._plain(value, block) for value in body.inputs}
        for array, value in zip(loop.inputs[count:], body.inputs[count:], strict=True):
            step = self._gradients.steps.get(value)
            if step is not None and (block, step) in self._local:
                hints[value] = self._local[block, step]
            elif isinstance(array, Value) and hints[value] in ("item", "term"):
                name = names[array].name
                hints[value] = name.removesuffix(_STEPS) if name.endswith(_STEPS) else f"{name}_step"
        return hints

    def _note(self, statement: Statement, names: Mapping[Operand, Value]) -> str:
        if statement.function is not None:
            received = zip(self._functions[statement.function].inputs, statement.inputs, strict=True)
            notes = [
                self._note_on_argument(statement, value.name, names[operand].name, names)
                for value, operand in received
                if isinstance(operand, Value) and statement.role == "backward"
            ]
            return "; ".join(filter(None, notes))
        text, value = self._gradients.notes.get(statement.output, ("", None)) if statement.outputs else ("", None)
        if value is None:
            return text
        return text.format(names[value].name) if value in names else ""

    def _note_on_argument(self, call: Statement, name: str, argument: str, names: Mapping[Operand, Value]) -> str:
        if name == "d_input_so_far":
            # With several sums, the name of one would be a guess.
            targets = [self._gradients.of[each] for each in call.outputs if each in self._gradients.of]
            sums = [names[each].name for each in targets if each in names and each not in self._params]
            return f"{argument} is the part of d_{sums[0]} from the other uses of {sums[0]}" if len(sums) == 1 else ""
        output = _prefixed(_last_name(call.block), "output")
        added = any(old in self._added for old, new in names.items() if new.name == output)
        if name == "d_output" and argument != f"d_{output}" and added:
            return f"{argument} is also d_{output}, because the gradient of a sum goes unchanged to each term"
        return ""

    def _hints(
        self, statement: Statement, output_names: Mapping[Value, str], around: str, names: Mapping[Operand, Value]
    ) -> list[str]:
        is_call, is_inner = statement.function is not None, statement.block != around
        hints: list[str] = []
        if statement.function is not None:
            outputs = self._functions[statement.function].outputs
            hints = [output.name if isinstance(output, Value) else "output" for output in outputs]
        elif is_inner and len(statement.outputs) == 1 and not statement.block.startswith("("):  # "(loss)"
            hints = {"forward": ["output"], "backward": ["d_input"]}.get(statement.role or "", [])
        fused = _RESULT_NAMES.get(statement.primitive)
        hints = hints or [fused or self._plain(value, around) for value in statement.outputs]
        if is_inner:
            hints = [_prefixed(_last_name(statement.block), hint) for hint in hints]
        for index, value in enumerate(statement.outputs if is_call else ()):
            target = self._gradients.of.get(value)
            if target is not None:
                local = names[target].name if target in names else self._local.get((around, target))
                hints[index] = f"d_{local}" if local else hints[index]
        return [output_names.get(value, hint) for value, hint in zip(statement.outputs, hints, strict=True)]

    def _name_of_input(self, function: Function, value: Value) -> str:
        if value in self._params:
            return self._relative(function, value.name)
        if function.role == "backward":
            # If several blocks share a function, only the values of the first block have names.
            values = (value, self._divided.aliases.get(value, value), self._gradients.steps.get(value, value))
            keys = [(path, each) for path in self._paths(function) for each in values]
            forward = next((self._local[key] for key in keys if key in self._local), None)
            if forward:
                return forward
        if value in self._given and self._roles.get(value) != "backward":
            return self._port(function.block, value) or value.name
        if function.role == "backward":
            return self._gradient_name(function, value)
        # `input` is what most blocks call what they receive; an ambiguous port gets it too.
        return self._port(function.block, value) or "input" if function.role == "forward" else value.name

    def _port(self, block: str, value: Value) -> str:
        source = self._sources.get(value)
        # An array that several ports receive, such as x in x @ x, has the name of none.
        ports = [port for port, each in self._ports.sources.get(block, {}).items() if each == source]
        return ports[0] if len(ports) == 1 else ""

    def _leaves(self, value: Value, block: str) -> bool:
        users = self._used_by.get(value, ())
        return value in self._results or any(role != "backward" and not _is_inside(user, block) for user, role in users)

    def _sources_of_values(self) -> dict[Value, tuple[str, str]]:
        """Return a dict from arrays of the forward pass to their sources: the path of a block and its output port.

        The source of an input of the program is `""` and the name of the input. Other arrays inside blocks are missing.
        """
        leaving: dict[str, dict[Value, tuple[int, int]]] = {}
        first: dict[tuple[str, Value], tuple[int, int]] = {}  # where a value's earliest ancestor in a block is computed
        for at, statement in enumerate(self._main.walk()):
            path = next((path for path in lineage(statement.block) if path in self._ports.outputs), None)
            if path is not None and statement.role != "backward":
                ancestors = [first[path, value] for value in statement.reads if (path, value) in first]
                for index, value in enumerate(statement.outputs):
                    first[path, value] = min(ancestors, default=(at, index))
                    if self._leaves(value, path):
                        leaving.setdefault(path, {})[value] = first[path, value]
        sources = {value: ("", value.name) for value in self._given}
        for path, values in leaving.items():
            ports = self._ports.outputs[path]
            if len(ports) == len(values):  # else the clean-up merged two outputs, or removed one
                # Sort by the earliest ancestor: after the clean-up, an earlier statement may compute an output.
                ordered = sorted(values, key=values.__getitem__)
                sources.update(zip(ordered, [(path, port) for port in ports], strict=True))
        return sources

    def _gradient_name(self, function: Function, value: Value) -> str:
        if self._roles.get(value) != "backward":
            return self._plain(value, function.block)
        # JAX adds up the gradients of the uses of a value, so a backward function may only add its own.
        uses = {statement.primitive for statement in function.statements if value in statement.reads}
        if uses <= {"add", "add_any"} and any(
            statement.role == "backward" and value not in statement.reads for statement in function.statements
        ):
            return "d_input_so_far"
        return self._gradient_of(value, self._paths(function)) or f"d_{self._read_port(function.block, value)}"

    def _read_port(self, block: str, gradient: Value) -> str:
        # If a block has several outputs, the gradient is named after the port that it belongs to.
        producer = self._main.producers.get(gradient)
        reads = self._ports.sources.get(producer.block if producer else "", {}).values()
        ports = {port for path, port in reads if path == block}
        return ports.pop() if len(ports) == 1 < len(self._ports.outputs.get(block, ())) else "output"

    def _gradient_of(self, value: Value, blocks: Iterable[str]) -> str:
        """Return a name such as `"d_x"` for the gradient of an array `x` of these blocks; `""` for other values."""
        if value not in self._gradients.forms:
            return ""
        form, target = self._gradients.forms[value]
        local = next(filter(None, (self._local.get((block, target)) for block in blocks)), None)
        return form.format(local) if local else ""

    def _plain(self, value: Value, block: str) -> str:
        """Return the name of an array within a block: its meaning, such as `"softmax"`, or else its operation.

        In the backward pass, an array without a known meaning is a `"term"`.
        """
        if self._roles.get(value) == "backward":
            name = self._gradient_of(value, [block])
            received = ("input", *self._received.get(block, ()))
            if name and name.removeprefix("d_") not in received:  # the gradient of an input is a result's name
                return name
            # An array of the forward pass may have the name of its operation.
            return "zeros" if self._meanings.get(value) == "zeros" else "term"
        return self._meanings.get(value, value.name)

    def _paths(self, function: Function) -> list[str]:
        return [function.block, *self._divided.blocks.get(function, ())]

    def _name_of_output(self, function: Function, value: Value) -> str:
        result = self._results.get(value)
        if function.role == "forward":
            is_output = self._leaves(value, function.block)
            path, port = self._sources.get(value, ("", ""))
            if path == function.block and len(self._ports.outputs.get(path, ())) > 1:
                return port
            if port and path != function.block and not is_output:  # from an inner block, for the gradients
                return _prefixed(_last_name(path), port)
            return "output" if is_output else self._plain(value, function.block)
        if result is not None:
            prefix = next((prefix for prefix in ("d_", "new_") if result.startswith(prefix)), "")
            return prefix + self._relative(function, result.removeprefix(prefix))
        if function.role != "backward":
            return self._plain(value, function.block)
        return self._gradient_of(value, self._paths(function)) or "d_input"

    def _relative(self, function: Function, name: str) -> str:
        prefix = function.block.replace("/", ".") + "."
        return name.removeprefix(prefix) if name.startswith(prefix) else name


def _last_name(path: str) -> str:
    return identifier(name_of(path.split("/")[-1]))


def _prefixed(block: str, name: str) -> str:
    return f"d_{block}_{name[2:]}" if name.startswith("d_") else f"{block}_{name}"


def _is_inside(path: str, block: str) -> bool:
    return path == block or path.startswith(f"{block}/")


def _meanings(main: Function) -> dict[Operand, str]:
    names: dict[Operand, str] = {}
    for statement in main.walk():
        name = _meaning(statement, main.producers, names) if statement.outputs else ""  # a debug callback has none
        if name:
            names[statement.output] = name
    return names


def _meaning(statement: Statement, producers: Mapping[Operand, Statement], names: Mapping[Operand, str]) -> str:
    primitive, inputs = statement.primitive, statement.inputs

    def before(index: int, name: str) -> Statement | None:
        producer = producers.get(inputs[index])
        return producer if producer is not None and producer.primitive == name else None

    def is_number(index: int, number: float) -> bool:
        operand = inputs[index]
        return isinstance(operand, Number) and operand.value == number

    if primitive == "broadcast_in_dim" and is_number(0, 0):
        return "zeros"
    if primitive == "square" or (primitive == "mul" and inputs[0] is inputs[1]):
        return "squared"
    # The names follow the textbook, statement by statement: what a mean is subtracted from is centered, and so on.
    if primitive == "sub" and names.get(inputs[1]) == "mean":
        return "centered"
    if primitive == "mul" and "centered" in map(names.get, inputs) and (before(0, "rsqrt") or before(1, "rsqrt")):
        return "normalized"
    if primitive == "integer_pow" and statement["y"] == -2:
        return "inverse_square"
    if primitive == "mul" and is_number(0, -0.5) and (ratio := before(1, "div")):
        root = producers.get(ratio.operand)
        if root is not None and root.primitive == "rsqrt" and root.operand is ratio.inputs[1]:
            return "rsqrt_slope"
    if primitive != "div":
        # If the clean-up merged a negation into this statement, the result still has the name of the old primitive.
        usual = {"mul": "scaled", "sub": "difference", "add": "added"}
        return usual.get(primitive, "") if statement.output.name in ("negated", *usual.values()) else ""
    total, sums = before(0, "reduce_sum"), before(1, "reduce_sum")
    if total is not None and isinstance(inputs[1], Number):
        source = total.operand
        if not is_number(1, math.prod(source.shape[axis] for axis in total["axes"])):
            return ""
        if names.get(source) != "squared":
            return "mean"
        return "variance" if names.get(producers[source].operand) == "centered" else "mean_square"
    return "softmax" if sums is not None and before(0, "exp") and sums.operand is inputs[0] else ""
