"""Name the functions and arrays of a program that was divided into functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from mithril_nb.emission.blocks import Divided
from mithril_nb.emission.naming.gradients import Gradients
from mithril_nb.emission.naming.meanings import RESULT_NAMES, meanings
from mithril_nb.emission.naming.names import Names, identifier
from mithril_nb.emission.program import Function, Operand, Program, Statement, Value
from mithril_nb.graph.paths import lineage, name_of
from mithril_nb.graph.ports import Ports
from mithril_nb.stages.records import Role
from mithril_nb.stages.trace.tracing import Leaf

_SUFFIXES = {"forward": "", "backward": "_backward", "update": "_update"}
_STEPS = "_steps"


class Namer:
    """Chooses a name for every function and array of a program.

    Args:
        main: The program as one function.
        divided: The same program, divided into functions.
        constants: The array of each constant.
        params: The inputs of `main` that are parameters.
        outputs: The arrays that the program returns.
        reserved: Names that functions and constants must not have, because the emitter uses them itself.
        ports: The connections between the blocks.
        kinds: Kind of each block, by path of the block.
        fuse: A function that replaces statements by calls of library functions; see `build`.
    """

    def __init__(
        self,
        main: Function,
        divided: Divided,
        constants: Mapping[Value, Any],
        params: set[Value],
        outputs: tuple[Leaf, ...],
        reserved: Iterable[str],
        ports: Ports,
        kinds: Mapping[str, str],
        fuse: Callable[[Function], Function],
    ):
        self._ports, self._kinds, self._fuse = ports, kinds, fuse
        self._received: dict[str, tuple[str, ...]] = {}  # names of a forward function's inputs
        self._main, self._divided, self._params, self._outputs = main, divided, params, outputs
        self._given = set(main.inputs) - params
        self._roles = {**main.roles, **dict.fromkeys(params)}
        self._made_in = {value: one.block for one in main.walk() for value in one.outputs}
        self._used_by: dict[Value, set[tuple[str, Role | None]]] = {}
        for one in main.walk():
            for value in one.reads:
                self._used_by.setdefault(value, set()).add((one.block, one.role))
        self._added = {value for one in main.walk() if one.primitive in ("add", "add_any") for value in one.reads}
        self._results = self._names_of_results()
        self._meanings, self._gradients = meanings(main), Gradients(main, self._roles, self._results)
        self._sources = self._sources_of_values()
        self._globals = Names(reserved)
        used = {value for one in main.walk() for value in one.reads} | set(main.outputs)
        self._constants = {
            value: replace(value, name=self._globals.new("constant")) for value in constants if value in used
        }
        self._arrays = {self._constants[value]: array for value, array in constants.items() if value in used}
        self._functions: dict[Function, Function] = {}
        self._local: dict[tuple[str, Value], str] = {}  # names of arrays in the forward function of a block
        self._named: dict[Function, str] = {}
        self._forward: dict[str, str] = {}  # names of the forward functions, by block

    def program(self, name: str, inputs: tuple[Leaf, ...]) -> Program:
        """Return the program with names.

        Args:
            name: Name of the program.
            inputs: The arrays in the arguments of the program.
        """
        functions = self._divided.functions
        self._named = {functions[-1]: self._globals.new(name)}
        for function in sorted(functions[:-1], key=lambda one: one.block.count("/")):  # outer blocks first
            self._named[function] = found = self._globals.new(self._wanted(function))
            if function.role == "forward":
                self._forward.update((path, found) for path in self._paths(function))
        for function in functions:
            self._functions[function] = self._function(function)
        return Program(name, tuple(self._functions.values()), self._arrays, inputs, self._outputs)

    def _wanted(self, function: Function) -> str:
        path = function.block.split("/")
        name = identifier(name_of(path[-1]))
        if len(self._divided.blocks[function]) > 1:
            name = re.sub(r"_\d+$", "", name)
        forward = next((self._forward[one] for one in self._paths(function) if one in self._forward), None)
        if len(path) > 1 and name in self._named.values() and forward is None:
            name = f"{identifier(name_of(path[-2]))}_{name}"
        return (forward or name) + _SUFFIXES.get(function.role or "", "")

    def _names_of_results(self) -> dict[Value, str]:
        """Return names for the results of the program: `d_w` for the gradient of `w`, `new_w` for its new value."""
        known = {one.name for one in self._params}
        prefixes = {"backward": "d_", "update": "new_"}
        found: dict[Value, str] = {}
        for value, leaf in zip(self._main.outputs, self._outputs, strict=True):
            if not isinstance(value, Value) or value in found or value not in self._roles:
                continue
            key = leaf.keys[-1] if leaf.keys else "result"
            prefix = prefixes.get(self._roles[value] or "", "") if key in known else ""
            found[value] = prefix + (f"result_{key}" if key.isdigit() else key)
        return found

    def _function(self, function: Function) -> Function:
        scope = self._globals.inside()
        is_main = function is self._divided.functions[-1]
        names: dict[Value, Value] = dict(self._constants)

        def name(value: Value, wanted: str) -> Value:
            if value not in names:
                names[value] = replace(value, name=scope.new(wanted))
            return names[value]

        for value in function.inputs:
            name(value, value.name if is_main else self._name_of_input(function, value))
        wanted = {
            one: self._results.get(one, "result") if is_main else self._name_of_output(function, one)
            for one in function.outputs
            if isinstance(one, Value)
        }
        if function.role == "backward":  # the results choose their names before the arrays of earlier statements
            for value, text in wanted.items():
                name(value, text)
        new = self._body(function, names, name, wanted, function.block, {})
        if function.role == "forward":
            self._local |= {(function.block, old): new.name for old, new in names.items()}
            received = [names[value].name for value in function.inputs if value not in self._params]
            self._received.update(dict.fromkeys(self._paths(function), tuple(received)))
        blocks = tuple(dict.fromkeys(self._divided.blocks.get(function, ())))
        ports = (*self._received.get(function.block, ()), *self._ports.outputs.get(function.block, ()))
        kind = self._kinds.get(function.block, "")
        return replace(new, name=self._named[function], blocks=blocks, ports=ports, kind=kind)

    def _body(
        self,
        function: Function,
        names: dict[Value, Value],
        name: Any,
        wanted: Mapping[Value, str],
        block: str,
        items: Mapping[Value, str],
    ) -> Function:
        def use(one: Operand) -> Operand:
            return names[one] if isinstance(one, Value) else one

        statements: list[Statement] = []
        every = [replace(one, equations=self._divided.equations.get(one, one.equations)) for one in function.statements]
        function = self._fuse(replace(function, statements=tuple(every)))
        used = {value for one in function.statements for value in one.reads} | set(function.outputs)
        inputs = tuple([name(value, items.get(value, value.name)) for value in function.inputs])
        for one in function.statements:
            operands = tuple(map(use, one.inputs))
            items = self._names_of_items(one, names, block) if one.primitive == "scan" else {}
            bodies = tuple([self._body(body, names, name, {}, block, items) for body in one.bodies])
            hints = self._hints(one, wanted, block, names)
            if one.primitive == "scan":
                steps, carried = bodies[0].outputs, one.params["num_carry"]
                hints[carried:] = map(_stacked, hints[carried:], steps[carried:])
            outputs = [
                name(value, hint) if value in used else replace(value, name="_")
                for value, hint in zip(one.outputs, hints, strict=True)
            ]
            names.update(zip(one.outputs, outputs, strict=True))
            note = self._note(one, names)
            called = None if one.function is None else self._functions[one.function]
            statements.append(
                replace(one, inputs=operands, outputs=tuple(outputs), bodies=bodies, function=called, note=note)
            )
        outputs = tuple(map(use, function.outputs))
        return replace(function, inputs=inputs, outputs=outputs, statements=tuple(statements))

    def _names_of_items(self, loop: Statement, names: Mapping[Value, Value], block: str) -> dict[Value, str]:
        """Return names for what a step of a loop receives: an item of `x_steps` is `x`, an item of `x` is `x_step`."""
        (body,), count = loop.bodies, loop.params["num_carry"]
        found = {value: self._plain(value, block) for value in body.inputs}
        for array, value in zip(loop.inputs[count:], body.inputs[count:], strict=True):
            step = self._gradients.steps.get(value)
            if step is not None and (block, step) in self._local:
                found[value] = self._local[block, step]
            elif isinstance(array, Value) and found[value] in ("item", "term"):
                whole = names[array].name
                found[value] = whole.removesuffix(_STEPS) if whole.endswith(_STEPS) else f"{whole}_step"
        return found

    def _note(self, one: Statement, names: Mapping[Value, Value]) -> str:
        """Return a comment on a statement of the backward pass, or `""`."""
        if one.function is not None:
            received = zip(self._functions[one.function].inputs, one.inputs, strict=True)
            found = [
                self._note_on_argument(one, value.name, names[given].name, names)
                for value, given in received
                if isinstance(given, Value) and one.role == "backward"
            ]
            return "; ".join(filter(None, found))
        text, value = self._gradients.notes.get(one.outputs[0], ("", None)) if one.outputs else ("", None)
        if value is None:
            return text
        return text.format(names[value].name) if value in names else ""

    def _note_on_argument(self, call: Statement, name: str, given: str, names: Mapping[Value, Value]) -> str:
        """Return a comment on a gradient that a function of the backward pass receives under another name, or `""`."""
        if name == "d_input_so_far":
            whole = [self._gradients.of[each] for each in call.outputs if each in self._gradients.of]
            sums = [names[each].name for each in whole if each in names and each not in self._params]
            return f"{given} is the part of d_{sums[0]} from the other uses of {sums[0]}" if len(sums) == 1 else ""
        output = _prefixed(identifier(name_of(call.block.split("/")[-1])), "output")
        added = any(old in self._added for old, new in names.items() if new.name == output)
        if name == "d_output" and given != f"d_{output}" and added:
            return f"{given} is also d_{output}, because the gradient of a sum goes unchanged to each term"
        return ""

    def _hints(
        self, statement: Statement, wanted: Mapping[Value, str], around: str, known: Mapping[Value, Value]
    ) -> list[str]:
        block = identifier(name_of(statement.block.split("/")[-1]))
        if statement.function is not None:
            outputs = self._functions[statement.function].outputs
            inner = [one.name if isinstance(one, Value) else "output" for one in outputs]
        elif statement.block != around and len(statement.outputs) == 1 and not statement.block.startswith("("):
            inner = {"forward": ["output"], "backward": ["d_input"]}.get(statement.role or "", [])
        else:
            inner = []
        inner = inner or [
            RESULT_NAMES.get(statement.primitive) or self._plain(one, around) for one in statement.outputs
        ]
        is_inner = statement.block != around
        names = [_prefixed(block, one) if is_inner else one for one in inner]
        for place, value in enumerate(statement.outputs):
            whose = self._gradients.of.get(value)
            if statement.function is not None and whose is not None and whose in known:
                names[place] = f"d_{known[whose].name}"
            elif statement.function is not None and whose is not None and (around, whose) in self._local:
                names[place] = f"d_{self._local[around, whose]}"
        return [wanted.get(one, name) for one, name in zip(statement.outputs, names, strict=True)]

    def _name_of_input(self, function: Function, value: Value) -> str:
        if value in self._params:
            return self._relative(function, value.name)
        if function.role == "backward":
            # If several blocks share a function, only the values of the first block have names.
            values = (value, self._divided.aliases.get(value, value), self._gradients.steps.get(value, value))
            places = [(path, one) for path in self._paths(function) for one in values]
            forward = next((self._local[place] for place in places if place in self._local), None)
            if forward:
                return forward
        if value in self._given and self._roles.get(value) != "backward":
            return self._port(function.block, value) or value.name
        if function.role == "backward":
            return self._gradient_name(function, value)
        return self._port(function.block, value) or "input" if function.role == "forward" else value.name

    def _port(self, block: str, value: Value) -> str:
        """Return the input port of a block that receives an array; `""` if it is unknown or if there are several."""
        source = self._sources.get(value)
        found = [port for port, one in self._ports.sources.get(block, {}).items() if one == source]
        return found[0] if len(found) == 1 else ""

    def _sources_of_values(self) -> dict[Value, tuple[str, str]]:
        """Return a dict from arrays of the forward pass to their sources: the path of a block and its output port.

        The source of an input of the program is `""` and the name of the input. Other arrays inside blocks are missing.
        """
        leaving: dict[str, dict[Value, tuple[int, int]]] = {}
        first: dict[tuple[str, Value], tuple[int, int]] = {}  # where a value's earliest ancestor in a block is computed
        for at, one in enumerate(self._main.walk()):
            path = next((path for path in lineage(one.block) if path in self._ports.outputs), None)
            if path is not None and one.role != "backward":
                known = [first[path, value] for value in one.reads if (path, value) in first]
                for place, value in enumerate(one.outputs):
                    first[path, value] = min(known, default=(at, place))
                    users = self._used_by.get(value, set())
                    if value in self._results or any(
                        role != "backward" and not _is_inside(block, path) for block, role in users
                    ):
                        leaving.setdefault(path, {})[value] = first[path, value]
        found = {value: ("", value.name) for value in self._given}
        for path, values in leaving.items():
            ports = self._ports.outputs[path]
            if len(ports) == len(values):
                # Sort by the earliest ancestor: after the clean-up, an earlier statement may compute an output.
                found.update(zip(sorted(values, key=values.__getitem__), [(path, port) for port in ports], strict=True))
        return found

    def _gradient_name(self, function: Function, value: Value) -> str:
        """Return the name of a gradient that a backward function receives.

        If the function only adds the gradient that it computes to this one, the name is `d_input_so_far`.
        """
        if self._roles.get(value) != "backward":
            return self._plain(value, function.block)
        uses = {one.primitive for one in function.statements if value in one.reads}
        if uses <= {"add", "add_any"} and any(
            one.role == "backward" and value not in one.reads for one in function.statements
        ):
            return "d_input_so_far"
        return self._gradient_of(value, self._paths(function)) or f"d_{self._read_port(function.block, value)}"

    def _read_port(self, block: str, gradient: Value) -> str:
        """Return the output port of `block` to which `gradient` belongs.

        Return `"output"` if the port is unknown, or if the block has only one output.
        """
        reads = self._ports.sources.get(self._made_in.get(gradient, ""), {}).values()
        found = {port for path, port in reads if path == block}
        return found.pop() if len(found) == 1 < len(self._ports.outputs.get(block, ())) else "output"

    def _gradient_of(self, value: Value, blocks: Iterable[str]) -> str:
        """Return a name such as `"d_x"` for the gradient of an array `x` of these blocks; `""` for other values."""
        found = self._gradients
        for form, known in (
            ("d_{}", found.of),
            ("minus_d_{}", found.minus),
            ("unsummed_d_{}", found.unsummed),
            ("minus_unsummed_d_{}", found.minus_unsummed),
            ("d_{}_so_far", found.sums),
            ("part_of_d_{}", found.parts),
        ):
            whose = known.get(value)
            local = next((self._local[block, whose] for block in blocks if whose and (block, whose) in self._local), "")
            if local:
                return form.format(local)
        return ""

    def _plain(self, value: Value, block: str) -> str:
        """Return the name of an array within a block: its meaning, such as `"softmax"`, or else its operation.

        In the backward pass, an array without a known meaning is a `"term"`.
        """
        if self._roles.get(value) == "backward":
            name = self._gradient_of(value, [block])
            received = ("input", *self._received.get(block, ()))
            if name and name.removeprefix("d_") not in received:  # the gradient of an input is a result's name
                return name
            return (
                "zeros" if self._meanings.get(value) == "zeros" else "term"
            )  # an array of the forward pass may have the name of its operation
        return self._meanings.get(value, value.name)

    def _paths(self, function: Function) -> list[str]:
        return [function.block, *self._divided.blocks.get(function, ())]

    def _name_of_output(self, function: Function, value: Value) -> str:
        result = self._results.get(value)
        if function.role == "forward":
            users = self._used_by.get(value, set())
            is_output = result is not None or any(
                role != "backward" and not _is_inside(block, function.block) for block, role in users
            )
            path, port = self._sources.get(value, ("", ""))
            if path == function.block and len(self._ports.outputs.get(path, ())) > 1:
                return port
            if port and path != function.block and not is_output:  # from an inner block, for the gradients
                return _prefixed(identifier(name_of(path.split("/")[-1])), port)
            return "output" if is_output else self._plain(value, function.block)
        if result is not None:
            prefix = next((one for one in ("d_", "new_") if result.startswith(one)), "")
            return prefix + self._relative(function, result.removeprefix(prefix))
        if function.role != "backward":
            return self._plain(value, function.block)
        return self._gradient_of(value, self._paths(function)) or "d_input"

    def _relative(self, function: Function, name: str) -> str:
        prefix = function.block.replace("/", ".") + "."
        return name.removeprefix(prefix) if name.startswith(prefix) else name


def _stacked(hint: str, step: Operand) -> str:
    """Return a name for a result of a loop that stacks a value of each step."""
    return f"{step.name}{_STEPS}" if hint in ("stacked", "term") and isinstance(step, Value) else hint


def _prefixed(block: str, name: str) -> str:
    return f"d_{block}_{name[2:]}" if name.startswith("d_") else f"{block}_{name}"


def _is_inside(path: str, block: str) -> bool:
    return path == block or path.startswith(f"{block}/")
