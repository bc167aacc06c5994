"""Find the gradients of a program, and the arrays that they belong to."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mithril_nb.emission.params import expanded_shape
from mithril_nb.emission.program import Function, Number, Operand, Statement, Value, arrays, substituted
from mithril_nb.emission.sizes import example
from mithril_nb.stages.records import Role

_VIEWS = frozenset("reshape transpose rev squeeze expand_dims convert_element_type copy".split())
_PRODUCTS = frozenset("mul dot_general conv_general_dilated".split())
_LINEAR = frozenset({"neg", *_VIEWS})
_SUMS = frozenset("add add_any sub".split())
_UNARY = frozenset("abs asin atan cosh exp expm1 integer_pow log log1p logistic rsqrt sin sinh sqrt square".split())
"""Functions whose derivative is one factor: JAX multiplies by it, or divides by it, in one equation."""
_BY_RESULT = frozenset("exp expm1 logistic rsqrt sqrt".split())
"""Functions of `_UNARY` whose derivative JAX computes from their result, as for `exp`."""
_ERRORS = frozenset("erf erfc".split())
"""Functions whose derivative is a number times an array: JAX multiplies by them in two equations."""
_DERIVATIVES = {
    "div": "the derivative of {0}/b by b is -{0}/b**2; {0} and the minus follow",
    "erf": "the derivative of erf(x) is 2/sqrt(pi) * exp(-x*x)",
    "tanh": "the derivative of tanh(x) is (1 - tanh(x)) * (1 + tanh(x))",
    "erfc": "the derivative of erfc(x) is -2/sqrt(pi) * exp(-x*x)",
}
_CHOICES = frozenset("max min clamp select_n".split())
_FARTHEST = 12
"""Maximum number of values that a search visits: names must not cost more than emission, even in long programs."""


@dataclass(frozen=True)
class _Meaning:
    """The meaning of a value of the backward pass: it is `sign` times the gradient of the value `of`.

    If `is_unsummed` is true, it must still be summed over the axes along which `of` is broadcast.
    """

    of: Operand
    sign: int = 1
    is_unsummed: bool = False


class Gradients:
    """The values of the backward pass that are gradients of values of the forward pass.

    Only values that match a rule are found. For y = a * b, the gradient of `a` is d(loss)/dy * b. For y = a - b, the
    gradient of `b` is the negative of d(loss)/dy, summed over the axes along which `b` is broadcast.

    Args:
        main: The program as one function.
        roles: The part of a training step of each value.
        results: The name of each result of the program. The input `d_output` is the gradient of the result `output`.

    Attributes:
        of: The value of the forward pass that each complete gradient belongs to.
        forms: For each array that is a gradient, the form of its name, such as `"d_{}"`, and the value of the forward
            pass whose name replaces `{}`. Other forms are those of the negative of a gradient, of one of its terms, of
            a sum of some of its terms, and of an array that must still be summed over some axes, along which the value
            of the forward pass is broadcast.
        notes: For each value that uses a known derivative, a comment, and the value whose name replaces `{0}` in it.
        steps: For each value that a backward loop reads step by step, the value that the forward loop stacks.
    """

    def __init__(self, main: Function, roles: Mapping[Value, Role | None], results: Mapping[Operand, str]):
        self._roles: Mapping[Operand, Role | None] = {**roles}
        self._producers = {**main.producers}
        # In bodies too: a loop may read what no statement around it does.
        self._read_values = {*main.outputs, *(value for statement in main.walk() for value in statement.reads)}
        self._sources: dict[Operand, Operand] = {}  # the values that views show
        self._partners: dict[tuple[str, str, Operand], set[Operand]] = defaultdict(set)
        self.notes: dict[Operand, tuple[str, Operand | None]] = {}
        self.steps: dict[Operand, Operand] = {}
        self._next: dict[Operand, _Meaning] = {}  # meaning after one more factor
        # g * (1 - y) for y = tanh(x): y, and the meaning of the sum
        self._tanh: dict[Operand, tuple[Operand, _Meaning]] = {}
        # The caller passes d(loss)/d(output) as the input `d_output`; all other gradients follow from these.
        names = {f"d_{name}": value for value, name in results.items()}
        self._meanings: dict[Operand, _Meaning] = {
            value: _Meaning(names[value.name]) for value in main.inputs if value.name in names
        }
        self._terms: set[Operand] = set()
        self._parts: set[Operand] = set()
        self._totals: set[Operand] = set()
        self._read_all(main.statements)
        self.of: dict[Operand, Operand] = {}
        self.forms: dict[Operand, tuple[str, Operand]] = {}
        for value, meaning in self._meanings.items():
            sign = "minus_" if meaning.sign < 0 else ""
            form = f"{sign}d_{{}}"
            if meaning.is_unsummed:
                form = f"{sign}unsummed_d_{{}}"
            elif value in self._terms:
                if sign or value not in self._parts:
                    continue
                is_sum = value in self._totals or self._made_by(value, *_SUMS)
                form = "d_{}_so_far" if is_sum else "part_of_d_{}"
            elif not sign:
                self.of[value] = meaning.of
            self.forms[value] = form, meaning.of

    def _read_all(self, statements: Iterable[Statement]) -> None:
        for statement in statements:
            if statement.primitive == "scan":
                self._read_loop(statement)
            elif len(statement.outputs) == 1:
                self._read(statement)
            # A sum of known meaning makes its terms parts of it. A sum without one hides what its terms are.
            if statement.primitive in _SUMS and self._roles.get(statement.output) == "backward":
                total = self._meanings.get(statement.output)
                terms = [(value, self._meanings[value]) for value in self._summed(statement) if value in self._meanings]
                self._terms.update(value for value, term in terms if total is None or term.of is total.of)
                self._parts.update(value for value, term in terms if total is not None and term.of is total.of)

    def _read_loop(self, statement: Statement) -> None:
        # A backward loop reads values that a forward loop stacked, and gradients of its results.
        (body,) = statement.bodies
        if self._roles.get(statement.output) != "backward":
            self._read_all(body.statements)
            return
        gradients = {value: it.of for value, it in self._meanings.items() if it.sign > 0 and not it.is_unsummed}
        loop = _backward_loop(statement, self._producers, gradients)
        if loop is None:
            return
        self.steps |= loop.steps
        for value, of in loop.gradients.items():
            self._note(value, of)
        # The rules then see the values of the forward body itself instead of the stacked arrays.
        statements = substituted(replace(body, inputs=()), loop.steps).statements
        self._producers |= {value: each for each in statements for value in each.outputs}
        self._read_all(statements)
        for start, result, output in zip(body.inputs[: loop.totals], body.outputs, statement.outputs, strict=False):
            self._read_total(start, result, output)
        inner, first = loop.forward.bodies[0], loop.totals
        outer = dict(zip(inner.inputs, loop.forward.inputs, strict=True))
        for result, output in zip(body.outputs[first:], statement.outputs[first:], strict=True):
            meaning = self._meanings.get(result)
            # A result that nothing reads may be one of several terms, which nothing adds.
            if meaning is not None and not meaning.is_unsummed and output in self._read_values:
                of = next((outer[value] for value in self._same(meaning.of) if value in outer), None)
                self._note(output, of, meaning.sign)

    def _read_total(self, start: Value, result: Operand, output: Value) -> None:
        producer = self._producers.get(result)
        others = [operand for operand in producer.inputs if operand is not start] if producer is not None else []
        term = others[0] if len(others) == 1 else start
        meaning = self._meanings.get(term)
        if term is not start and meaning is not None and meaning.sign > 0 and not meaning.is_unsummed:
            self._note(output, meaning.of)
            self._meanings |= {start: meaning, result: meaning}
            self._terms |= {start, term, result}
            self._parts |= {start, term, result}
            self._totals |= {start, result}

    def _note(self, value: Operand, of: Operand | None, sign: int = 1) -> None:
        # A value with fewer items than its target is a gradient of something else, which a rule mistook.
        if isinstance(of, Value) and (more := example(value.size) - example(of.size)) >= 0:
            self._meanings[value] = _Meaning(of, sign, more > 0)

    def _read(self, statement: Statement) -> None:
        name, output, values = statement.primitive, statement.output, arrays(statement.inputs)
        is_one_factor = name in ("mul", "div") and values == [statement.operand]
        if name in _VIEWS and values:
            self._sources[output] = self._source(values[0])
        if self._roles.get(output) != "backward":
            self._read_forward(statement, values)
        elif name in _SUMS:
            self._read_sum(statement)
        elif name == "reduce_sum" and values[0] in self._meanings:
            meaning = self._meanings[values[0]]
            repeated = _repeated(meaning.of, statement["axes"], self._producers)
            self._note(output, meaning.of if meaning.is_unsummed else repeated, meaning.sign)
        elif values and (name in _LINEAR or is_one_factor or (name == "mul" and len(values) == 1)):
            self._read_linear(statement, values[0])
        elif name in (*_PRODUCTS, "div") and len(values) == 2:
            for factor, other in (values, reversed(values)):
                if self._roles.get(factor) != "backward" and self._roles.get(other) == "backward":
                    self._read_product(statement, factor, other)
        # The gradient of a split; that of a concatenation are slices, which `_VIEWS` does not contain.
        elif name == "concatenate" and all(value in self._meanings for value in statement.inputs):
            self._read_joined(statement, [self._meanings[value] for value in values])
        elif name == "select_n":  # of a maximum or a clamp: the gradient, or 0
            meanings = [self._meanings[value] for value in values if value in self._meanings]
            if len(meanings) == 1 == sum(self._roles.get(value) == "backward" for value in values):
                self._note(output, self._operand(meanings[0].of, _CHOICES), meanings[0].sign)

    def _read_forward(self, statement: Statement, values: list[Value]) -> None:
        name, block = statement.primitive, statement.block
        if name == "square":  # x * x, whose partner is x
            self._partners["mul", block, self._source(values[0])].add(values[0])
        elif name in (*_PRODUCTS, "div") and len(values) == 2:
            first, second = values
            self._partners[name, block, self._source(second)].add(first)
            if name != "div":
                self._partners[name, block, self._source(first)].add(second)

    def _read_joined(self, statement: Statement, parts: Sequence[_Meaning]) -> None:
        # If all parts of a split have gradients, these joined are the gradient of the array.
        split, signs = self._made_by(parts[0].of, "split"), {part.sign for part in parts}
        if split is not None and [part.of for part in parts] == [*split.outputs]:
            if len(signs) == 1 and not any(part.is_unsummed for part in parts):
                self._note(statement.output, split.operand, *signs)

    def _summed(self, statement: Statement) -> list[Operand]:
        terms: list[Operand] = []
        for value in statement.inputs:
            inner = None if value in self._meanings else self._made_by(value, "add", "add_any")
            terms += [value] if inner is None else self._summed(inner)
        return terms

    def _read_sum(self, statement: Statement) -> None:
        # For y = tanh(x), JAX computes the gradient of x as the sum of g * (1 - y) and g * (1 - y) * y.
        terms = [*statement.inputs] if statement.primitive == "sub" else self._summed(statement)
        meanings: list[_Meaning | None] = []
        for value in terms:
            if any(term in self._tanh and self._is_product(value, term) for term in terms):
                continue
            if value not in self._tanh:
                meanings.append(self._meanings.get(value))
            else:
                is_complete = any(self._is_product(other, value) for other in terms)
                meanings.append(self._tanh[value][1] if is_complete else None)
        if statement.primitive == "sub" and meanings[1] is not None:
            meanings[1] = replace(meanings[1], sign=-meanings[1].sign)
        first, *others = meanings
        if first is None or any(term is None or term.sign != first.sign for term in others):
            return
        same = [{*self._same(term.of, has_sums=True)} for term in others if term is not None]
        of = next((value for value in self._same(first.of, has_sums=True) if all(value in each for each in same)), None)
        self._note(statement.output, of, first.sign)

    def _is_product(self, value: Operand, first: Operand) -> bool:
        product = self._made_by(value, "mul")
        return product is not None and {first, self._tanh[first][0]} == {*product.inputs}

    def _read_linear(self, statement: Statement, array: Value) -> None:
        output = statement.output
        if array in self._next and statement.primitive == "mul":  # the second of two factors
            self._note(output, self._next[array].of, self._next[array].sign)
        meaning = self._meanings.get(array)
        if meaning is None:
            return
        turned = -meaning.sign if statement.primitive == "neg" else meaning.sign
        if meaning.is_unsummed:
            if statement.primitive in _LINEAR:
                self._note(output, meaning.of, turned)
            return
        same = [*self._same(meaning.of)]
        inverted = next(filter(None, [_operand_through(statement, value, self._producers) for value in same]), None)
        if inverted is not None:
            self._note(output, inverted, meaning.sign)
        elif statement.primitive == "neg":
            subtracted = arrays(difference.inputs[1] for value in same if (difference := self._made_by(value, "sub")))
            self._note(output, *((subtracted[0], meaning.sign) if subtracted else (meaning.of, turned)))
        elif statement.primitive == "mul":
            operand = self._operand(meaning.of, _ERRORS)
            if operand is not None:
                self._next[output] = _Meaning(operand, meaning.sign)
                self.notes[output] = (_DERIVATIVES[self._producers[meaning.of].primitive], None)

    def _read_product(self, statement: Statement, factor: Value, other: Value) -> None:
        output = statement.output
        if other in self._next:
            self._note(output, self._next[other].of, self._next[other].sign)
            return
        meaning = self._meanings.get(other)
        if meaning is not None and not meaning.is_unsummed and self._read_rule(statement, factor, meaning):
            return
        product = self._made_by(other, *_PRODUCTS, "div")
        if product is not None and product.block == statement.block:
            return  # a derivative of several products, such as tanh's
        partners = self._partners.get((statement.primitive, statement.block, self._source(factor)), set())
        # An array may be a factor of several products; the one whose other factor has the right size decides.
        equal = [value for value in partners if value.size == output.size] if len(partners) > 1 else [*partners]
        self._note(output, equal[0] if len(equal) == 1 else None)

    def _read_rule(self, statement: Statement, factor: Value, meaning: _Meaning) -> bool:
        """Find the meaning of a product or quotient of a gradient and `factor`, a value of the forward pass.

        The statement that computed the value of the gradient determines the rule. Return whether a rule applies.
        """
        output, name, sign = statement.output, statement.primitive, meaning.sign
        for value in self._same(meaning.of, has_sums=True):
            producer = self._producers.get(value)
            if producer is None:
                continue
            primitive, block = producer.primitive, producer.block
            if primitive == "tanh" and name == "mul":
                rest = self._made_by(factor, "sub")
                if rest is not None and rest.inputs[1] is value:
                    self.notes[output] = (_DERIVATIVES["tanh"], None)
                    self._tanh[output] = (value, replace(meaning, of=producer.operand))
                    return True
                if factor is not value and self._is_computed_from(factor, {value}, block):  # since JAX 0.12
                    self._note(output, producer.operand, sign)
                    return True
            operand = self._operand(value, _UNARY) if name in ("mul", "div") else None
            sources = {value} if primitive in _BY_RESULT else {operand}
            is_slope = factor is not operand or name == "div"  # d(log(x))/dx is 1/x
            if operand is not None and is_slope and self._is_computed_from(factor, sources, block):
                self._note(output, operand, sign)
                return True
            operand = self._operand(value, _ERRORS) if name == "mul" else None
            if operand is not None and not self._is_computed_from(factor, {operand}, block):
                operand = None
            power = self._made_by(factor, "integer_pow") if primitive == "div" else None
            if power is not None:
                operand = power.operand if power.operand is producer.inputs[1] else None
            if operand is not None:
                self._next[output] = _Meaning(operand, -sign if primitive == "div" else sign)
                dividend = producer.operand if primitive == "div" else None
                text = _DERIVATIVES[primitive]
                is_number = isinstance(dividend, Number)
                self.notes[output] = (text.format(dividend.text), None) if is_number else (text, dividend)
                return True
            if primitive == name:
                values = arrays(producer.inputs)
                rest = [each for each in values if self._source(each) is not self._source(factor)]
                if len(values) == len(producer.inputs) == 2 and len(rest) < 2:
                    if not rest:
                        self.notes[output] = ("added once for each factor of {0} * {0}", factor)
                    self._note(output, rest[0] if rest else factor, sign)
                    return True
        return False

    def _source(self, value: Operand) -> Operand:
        return self._sources.get(value, value)

    def _made_by(self, value: Operand, *primitives: str) -> Statement | None:
        """Return the statement that computes a value, if its primitive is one of these."""
        producer = self._producers.get(value)
        return producer if producer is not None and producer.primitive in primitives else None

    def _is_computed_from(self, value: Operand, sources: Collection[Operand | None], block: str) -> bool:
        """Return whether a value is in `sources`, or is computed from one of them by a few statements of a block."""
        waiting, seen = deque([value]), set[Operand]()
        while waiting and len(seen) < _FARTHEST:  # derivatives are short: 1 - y * y, 0.5 / sqrt(x)
            value = waiting.popleft()
            if value in sources:
                return True
            seen.add(value)
            producer = self._producers.get(value)
            if producer is not None and producer.block == block:
                waiting += [each for each in producer.reads if each not in seen]
        return False

    def _operand(self, value: Operand, primitives: Collection[str]) -> Value | None:
        producer = self._made_by(value, *primitives)
        values = [each for each in arrays(producer.inputs) if each.dtype != "bool"] if producer is not None else []
        return values[0] if len(values) == 1 else None

    def _same(self, value: Operand, has_sums: bool = False) -> Iterator[Operand]:
        # A gradient goes unchanged to each term of a sum; `reduce_sum` repeats its numbers.
        waiting = deque([value])
        for _ in range(_FARTHEST):
            if not waiting:
                return
            value = waiting.popleft()
            yield value
            producer = self._producers.get(value)
            if producer is None or self._roles.get(value) == "backward":
                continue
            if producer.primitive in _SUMS:
                terms = producer.inputs[:1] if producer.primitive == "sub" else producer.inputs
                waiting += [each for each in arrays(terms) if each.size == value.size]
            elif producer.primitive == "reduce_sum" and has_sums:
                waiting += arrays(producer.inputs)


@dataclass(frozen=True)
class _BackwardLoop:
    """A loop of the backward pass, which runs over the steps of a forward loop in reverse.

    Attributes:
        forward: The forward loop.
        steps: For an input of the backward body that it reads step by step, the value of the forward body that the
            forward loop stacks.
        gradients: For an input of the backward body, the value of the forward body whose gradient, or a term of whose
            gradient, it is.
        totals: Number of sums over all steps at the start of the backward carry, such as the gradients of weights. The
            other values of the carry are gradients of the forward carry. 0 also if the two carries do not match.
    """

    forward: Statement
    steps: dict[Operand, Operand]
    gradients: dict[Operand, Operand]
    totals: int


def _backward_loop(
    loop: Statement, producers: Mapping[Operand, Statement], gradients_of: Mapping[Operand, Operand]
) -> _BackwardLoop | None:
    (body,), count = loop.bodies, loop["num_carry"]
    forward: Statement | None = None
    steps, gradients = dict[Operand, Operand](), dict[Operand, Operand]()
    for array, item in zip(loop.inputs[count:], body.inputs[count:], strict=True):
        stacked = gradients_of.get(array, array)
        scan = producers.get(stacked)
        if scan is None or scan.primitive != "scan" or scan["reverse"] == loop["reverse"]:
            continue
        position = next(index for index, output in enumerate(scan.outputs) if output is stacked)
        step = scan.bodies[0].outputs[position]
        if position >= scan["num_carry"] and isinstance(step, Value):
            forward = scan
            (gradients if array in gradients_of else steps)[item] = step
    if forward is None:
        return None
    inner = forward.bodies[0]
    # An integer in the carry, such as a counter, has no gradient.
    carry = [index for index in range(forward["num_carry"]) if "float" in inner.inputs[index].dtype]
    totals = count - len(carry)  # JAX puts what it sums up, such as gradients of constants, before the carry
    added = [producers.get(output) for output in body.outputs[: max(totals, 0)]]  # what a step only adds to
    is_matched = totals >= 0 and all(
        producer is not None and producer.primitive in ("add", "add_any") and start in producer.inputs
        for producer, start in zip(added, body.inputs, strict=False)
    )
    ends = body.inputs[max(totals, 0) : count]
    if not is_matched or [value.shape for value in ends] != [inner.inputs[index].shape for index in carry]:
        return _BackwardLoop(forward, steps, gradients, 0)
    results = [inner.outputs[index] for index in carry]
    gradients |= {end: value for end, value in zip(ends, results, strict=True) if isinstance(value, Value)}
    return _BackwardLoop(forward, steps, gradients, totals)


def _repeated(value: Operand, axes: tuple[int, ...], producers: Mapping[Operand, Statement]) -> Operand | None:
    producer = producers.get(value)
    if producer is None or producer.primitive != "broadcast_in_dim":
        return None
    sizes = enumerate(zip(value.shape, expanded_shape(producer), strict=True))
    changed = [axis for axis, (size, before) in sizes if size != before]
    return producer.operand if changed == sorted(axis for axis in axes if value.shape[axis] != 1) else None


def _operand_through(statement: Statement, value: Operand, producers: Mapping[Operand, Statement]) -> Operand | None:
    # Both statements must be the same linear operation: if `value` is 2 * x, and `statement` multiplies the gradient by
    # 2, the result belongs to x.
    producer = producers.get(value)
    if producer is None or (producer.primitive, producer.block) != (statement.primitive, statement.block):
        return None
    values = arrays(producer.inputs)
    numbers = [[each.value for each in part.inputs if isinstance(each, Number)] for part in (producer, statement)]
    return values[0] if len(values) == 1 and numbers[0] == numbers[1] else None
