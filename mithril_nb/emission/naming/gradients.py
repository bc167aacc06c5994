"""Find the gradients of a program, and the arrays that they belong to."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from mithril_nb.emission.naming.matching import backward_loop, operand_through, repeated
from mithril_nb.emission.program import Function, Number, Operand, Statement, Value, substituted
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
"""Maximum number of values that a search visits."""


@dataclass(frozen=True)
class _Known:
    """The meaning of a value of the backward pass: it is `sign` times the gradient of the value `of`.

    If `is_unsummed` is true, it must still be summed over the axes along which `of` is broadcast.
    """

    of: Value
    sign: int = 1
    is_unsummed: bool = False


class Gradients:
    """The values of the backward pass that are gradients of values of the forward pass.

    Only values that match a rule are found. For y = a * b, the gradient of `a` is d(loss)/dy * b. For y = a - b, the
    gradient of `b` is the negative of d(loss)/dy, summed over the axes along which `b` is broadcast.

    Args:
        main: The program as one function.
        roles: A dict from each value to the part of a training step that it belongs to.
        results: A dict from each result of the program to its name. The input `d_output` is the gradient of the result
            `output`.

    Attributes:
        of: A dict from each complete gradient to the value of the forward pass that it belongs to.
        minus: The same for each array that is the negative of a gradient.
        parts: The same for each term of a gradient that is a sum of several terms.
        sums: The entries of `parts` that are sums of some of the terms.
        unsummed: The same for each array whose sum over some axes is a gradient. These are the axes along which the
            value of the forward pass is broadcast.
        minus_unsummed: The same for each array whose sum is the negative of a gradient.
        notes: A dict from each value that uses a known derivative to a pair: a comment, and the value whose name
            replaces `{0}` in the comment, or `None` if the comment contains no name.
        steps: A dict from each value that a backward loop reads iteration by iteration to the value of the forward loop
            that was stacked for it.
    """

    def __init__(self, main: Function, roles: Mapping[Value, Role | None], results: Mapping[Value, str]):
        self._roles = roles
        self._producers = {value: one for one in main.walk() for value in one.outputs}
        self._read_values = {*main.outputs, *(value for one in main.walk() for value in one.reads)}
        self._sources: dict[Value, Value] = {}  # the values that views show
        self._partners: dict[tuple[str, str, Value], set[Value]] = defaultdict(set)
        self.notes: dict[Value, tuple[str, Value | None]] = {}
        self.steps: dict[Value, Value] = {}
        self._next: dict[Value, _Known] = {}  # meaning after one more factor
        self._tanh: dict[Value, tuple[Value, _Known]] = {}  # g * (1 - y) for y = tanh(x): y, and the meaning of the sum
        names = {f"d_{name}": value for value, name in results.items()}
        self._known = {one: _Known(names[one.name]) for one in main.inputs if one.name in names}
        self._terms: set[Value] = set()
        self._parts: set[Value] = set()
        self._totals: set[Value] = set()
        self._read_all(main.statements)
        complete = [(one, it) for one, it in self._known.items() if not it.is_unsummed and one not in self._terms]
        self.of = {value: known.of for value, known in complete if known.sign > 0}
        self.minus = {value: known.of for value, known in complete if known.sign < 0}
        rest = {one: it for one, it in self._known.items() if it.sign > 0 and one not in self.of}
        self.unsummed = {one: it.of for one, it in rest.items() if it.is_unsummed}
        self.minus_unsummed = {one: it.of for one, it in self._known.items() if it.is_unsummed and it.sign < 0}
        self.parts = {one: it.of for one, it in rest.items() if one in self._parts}
        self.sums = {
            one: of
            for one, of in self.parts.items()
            if one in self._totals or any(self._is_made(one, name) for name in _SUMS)
        }

    def _read_all(self, statements: Iterable[Statement]) -> None:
        for one in statements:
            if one.primitive == "scan":
                self._read_loop(one)
            elif len(one.outputs) == 1:
                self._read(one)
            if one.primitive in _SUMS and self._roles.get(one.outputs[0]) == "backward":
                whole = self._known.get(one.outputs[0])
                known = [(value, self._known[value]) for value in self._summed(one) if value in self._known]
                self._terms.update(value for value, term in known if whole is None or term.of is whole.of)
                self._parts.update(value for value, term in known if whole is not None and term.of is whole.of)

    def _read_loop(self, one: Statement) -> None:
        """Find the meanings in a loop. A backward loop reads values of a forward loop, and gradients of its results."""
        (body,) = one.bodies
        if self._roles.get(one.outputs[0]) != "backward":
            self._read_all(body.statements)
            return
        known = {value: it.of for value, it in self._known.items() if it.sign > 0 and not it.is_unsummed}
        loop = backward_loop(one, self._producers, known)
        if loop is None:
            return
        self.steps |= loop.steps
        for value, of in loop.gradients.items():
            self._note(value, of)
        statements = substituted(replace(body, inputs=()), loop.steps).statements
        self._producers |= {value: each for each in statements for value in each.outputs}
        self._read_all(statements)
        for start, result, output in zip(body.inputs[: loop.totals], body.outputs, one.outputs, strict=False):
            if isinstance(result, Value):
                self._read_total(start, result, output)
        inner, first = loop.forward.bodies[0], loop.totals
        whole = dict(zip(inner.inputs, loop.forward.inputs, strict=True))
        for result, output in zip(body.outputs[first:], one.outputs[first:], strict=True):
            found = self._known.get(cast(Value, result))
            # A result that nothing reads may be one of several terms, which nothing adds.
            if found is not None and not found.is_unsummed and output in self._read_values:
                of = next((whole[one] for one in self._same(found.of) if one in whole), None)
                self._note(output, of if isinstance(of, Value) else None, found.sign)

    def _read_total(self, start: Value, result: Value, output: Value) -> None:
        """Find the value of the forward pass whose gradient a loop sums up.

        The sum is `start` before an iteration, `result` after it, and `output` after all iterations.
        """
        others = [cast(Value, one) for one in self._producers[result].inputs if one is not start]
        term = others[0] if len(others) == 1 else start
        known = self._known.get(term)
        if term is not start and known is not None and known.sign > 0 and not known.is_unsummed:
            self._note(output, known.of)
            self._known |= {start: known, result: known}
            self._terms |= {start, term, result}
            self._parts |= {start, term, result}
            self._totals |= {start, result}

    def _note(self, value: Value, of: Value | None, sign: int = 1) -> None:
        if of is not None and (more := example(value.size) - example(of.size)) >= 0:
            self._known[value] = _Known(of, sign, more > 0)

    def _read(self, one: Statement) -> None:
        (output,) = one.outputs
        given = [value for value in one.inputs if isinstance(value, Value)]
        is_one_factor = one.primitive in ("mul", "div") and given == [one.inputs[0]]
        if one.primitive in _VIEWS and given:
            self._sources[output] = self._source(given[0])
        if self._roles.get(output) != "backward":
            self._read_forward(one, given)
        elif one.primitive in _SUMS:
            self._read_sum(one)
        elif one.primitive == "reduce_sum" and given[0] in self._known:
            known = self._known[given[0]]
            axes = one.params["axes"]
            self._note(output, known.of if known.is_unsummed else repeated(known.of, axes, self._producers), known.sign)
        elif given and (one.primitive in _LINEAR or is_one_factor or (one.primitive == "mul" and len(given) == 1)):
            self._read_linear(one, given[0])
        elif one.primitive in (*_PRODUCTS, "div") and len(given) == 2:
            for factor, other in (given, reversed(given)):
                if self._roles.get(factor) != "backward" and self._roles.get(other) == "backward":
                    self._read_product(one, factor, other)
        elif one.primitive == "concatenate" and all(value in self._known for value in one.inputs):
            self._read_joined(one, [self._known[value] for value in given])
        elif one.primitive == "select_n":
            known = [self._known[value] for value in given if value in self._known]
            if len(known) == 1 == sum(self._roles.get(value) == "backward" for value in given):
                self._note(output, self._operand(known[0].of, _CHOICES), known[0].sign)

    def _read_forward(self, one: Statement, given: list[Value]) -> None:
        if one.primitive == "square":
            self._partners["mul", one.block, self._source(given[0])].add(given[0])
        elif one.primitive in (*_PRODUCTS, "div") and len(given) == 2:
            first, second = given
            self._partners[one.primitive, one.block, self._source(second)].add(first)
            if one.primitive != "div":
                self._partners[one.primitive, one.block, self._source(first)].add(second)

    def _read_joined(self, one: Statement, parts: Sequence[_Known]) -> None:
        """Find the meaning of a concatenation: joined gradients of all parts of a split are the array's gradient."""
        made = self._producers.get(parts[0].of)
        if made is not None and made.primitive == "split" and [part.of for part in parts] == [*made.outputs]:
            (source,), signs = made.inputs, {part.sign for part in parts}
            if isinstance(source, Value) and len(signs) == 1 and not any(part.is_unsummed for part in parts):
                self._note(one.outputs[0], source, *signs)

    def _summed(self, one: Statement) -> list[Value]:
        """Return the terms of a sum. A term that is a sum without a known meaning is replaced by its terms."""
        found: list[Value] = []
        for value in one.inputs:
            made = self._producers.get(cast(Value, value))
            is_sum = made is not None and made.primitive in ("add", "add_any") and value not in self._known
            found += self._summed(made) if is_sum and made is not None else [cast(Value, value)]
        return found

    def _read_sum(self, one: Statement) -> None:
        terms = [*one.inputs] if one.primitive == "sub" else self._summed(one)
        known = [self._known_term(cast(Value, value), terms) for value in terms if not self._is_second(value, terms)]
        if one.primitive == "sub" and known[1] is not None:
            known[1] = replace(known[1], sign=-known[1].sign)
        first, *others = known
        if first is None or any(term is None or term.sign != first.sign for term in others):
            return
        same = [{*self._same(term.of, has_sums=True)} for term in others if term is not None]
        of = next((value for value in self._same(first.of, has_sums=True) if all(value in each for each in same)), None)
        self._note(one.outputs[0], of, first.sign)

    # For y = tanh(x), JAX computes the gradient of x as the sum of g * (1 - y) and g * (1 - y) * y.

    def _known_term(self, value: Value, terms: Sequence[Operand]) -> _Known | None:
        if value not in self._tanh:
            return self._known.get(value)
        return self._tanh[value][1] if any(self._is_product(other, value) for other in terms) else None

    def _is_second(self, value: Operand, terms: Sequence[Operand]) -> bool:
        return any(one in self._tanh and self._is_product(value, cast(Value, one)) for one in terms)

    def _is_product(self, value: Operand, first: Value) -> bool:
        made = self._producers.get(cast(Value, value))
        return made is not None and made.primitive == "mul" and {first, self._tanh[first][0]} == {*made.inputs}

    def _read_linear(self, one: Statement, given: Value) -> None:
        (output,) = one.outputs
        if given in self._next and one.primitive == "mul":
            self._note(output, self._next[given].of, self._next[given].sign)
        known = self._known.get(given)
        if known is None:
            return
        turned = -known.sign if one.primitive == "neg" else known.sign
        if known.is_unsummed:
            if one.primitive in _LINEAR:
                self._note(output, known.of, turned)
            return
        same = [*self._same(known.of)]
        inverted = next(filter(None, [operand_through(one, value, self._producers) for value in same]), None)
        subtracted = [self._producers[value].inputs[1] for value in same if self._is_made(value, "sub")]
        if inverted is not None:
            self._note(output, inverted, known.sign)
        elif one.primitive == "neg":
            second = next((value for value in subtracted if isinstance(value, Value)), None)
            self._note(output, *((known.of, turned) if second is None else (second, known.sign)))
        elif one.primitive == "mul":
            operand = self._operand(known.of, _ERRORS)
            if operand is not None:
                self._next[output] = _Known(operand, known.sign)
                self.notes[output] = (_DERIVATIVES[self._producers[known.of].primitive], None)

    def _read_product(self, one: Statement, factor: Value, other: Value) -> None:
        """Find the meaning of the product of a value of the forward pass and a value of the backward pass."""
        (output,) = one.outputs
        if other in self._next:
            self._note(output, self._next[other].of, self._next[other].sign)
            return
        known = self._known.get(other)
        if known is not None and not known.is_unsummed and self._read_rule(one, factor, known):
            return
        made = self._producers.get(other)
        if made is not None and made.block == one.block and made.primitive in (*_PRODUCTS, "div"):
            return  # a derivative of several products, such as tanh's
        partners = self._partners.get((one.primitive, one.block, self._source(factor)), set())
        equal = [value for value in partners if value.size == output.size] if len(partners) > 1 else [*partners]
        self._note(output, equal[0] if len(equal) == 1 else None)

    def _read_rule(self, one: Statement, factor: Value, known: _Known) -> bool:
        """Find the meaning of a product or quotient of a gradient and `factor`, a value of the forward pass.

        `one` computes it. The gradient belongs to the value `known.of`, and the statement that computed this value
        determines the rule. Return whether a rule applies.
        """
        (output,) = one.outputs
        for value in self._same(known.of, has_sums=True):
            made = self._producers.get(value)
            if made is None:
                continue
            if made.primitive == "tanh" and one.primitive == "mul" and isinstance(made.inputs[0], Value):
                rest = self._producers.get(factor)
                if rest is not None and rest.primitive == "sub" and rest.inputs[1] is value:
                    self.notes[output] = (_DERIVATIVES["tanh"], None)
                    self._tanh[output] = (value, replace(known, of=made.inputs[0]))
                    return True
                if factor is not value and self._is_computed_from(factor, {value}, made.block):  # since JAX 0.12
                    self._note(output, made.inputs[0], known.sign)
                    return True
            operand = self._operand(value, _UNARY) if one.primitive in ("mul", "div") else None
            sources = {value} if made.primitive in _BY_RESULT else {operand}
            is_slope = factor is not operand or one.primitive == "div"  # d(log(x))/dx is 1/x
            if operand is not None and is_slope and self._is_computed_from(factor, sources, made.block):
                self._note(output, operand, known.sign)
                return True
            operand = self._operand(value, _ERRORS) if one.primitive == "mul" else None
            if operand is not None and not self._is_computed_from(factor, {operand}, made.block):
                operand = None
            if made.primitive == "div" and self._is_made(factor, "integer_pow"):
                divisor = self._producers[factor].inputs[0]
                operand = divisor if divisor is made.inputs[1] and isinstance(divisor, Value) else None
            if operand is not None:
                self._next[output] = _Known(operand, -known.sign if made.primitive == "div" else known.sign)
                dividend = made.inputs[0] if made.primitive == "div" else None
                text = _DERIVATIVES[made.primitive]
                is_number = isinstance(dividend, Number)
                self.notes[output] = (text.format(dividend.text), None) if is_number else (text, dividend)
                return True
            if made.primitive == one.primitive:
                values = [each for each in made.inputs if isinstance(each, Value)]
                rest = [each for each in values if self._source(each) is not self._source(factor)]
                if len(values) == len(made.inputs) == 2 and len(rest) < 2:
                    if not rest:
                        self.notes[output] = ("added once for each factor of {0} * {0}", factor)
                    self._note(output, rest[0] if rest else factor, known.sign)
                    return True
        return False

    def _source(self, value: Value) -> Value:
        return self._sources.get(value, value)

    def _is_made(self, value: Value, primitive: str) -> bool:
        return value in self._producers and self._producers[value].primitive == primitive

    def _is_computed_from(self, value: Value, sources: Collection[Value | None], block: str) -> bool:
        """Return whether a value is in `sources`, or is computed from one of them by a few statements of a block."""
        waiting, seen = deque([value]), set[Value]()
        while waiting and len(seen) < _FARTHEST:
            value = waiting.popleft()
            if value in sources:
                return True
            seen.add(value)
            made = self._producers.get(value)
            if made is not None and made.block == block:
                waiting += [each for each in made.reads if each not in seen]
        return False

    def _operand(self, value: Value, primitives: Collection[str]) -> Value | None:
        """Return the only array, apart from bools, that the statement computing `value` reads.

        Return `None` if there are several, or if the statement's primitive is not in `primitives`.
        """
        made = self._producers.get(value)
        if made is None or made.primitive not in primitives:
            return None
        values = [each for each in made.inputs if isinstance(each, Value) and each.dtype != "bool"]
        return values[0] if len(values) == 1 else None

    def _same(self, value: Value, has_sums: bool = False) -> Iterator[Value]:
        """Yield values with the same gradient: a value, and the terms of the sums that compute it.

        If `has_sums` is true, also yield operands of `reduce_sum`: their gradients repeat the same numbers.
        """
        waiting = deque([value])
        for _ in range(_FARTHEST):
            if not waiting:
                return
            value = waiting.popleft()
            yield value
            made = self._producers.get(value)
            if made is None or self._roles.get(value) == "backward":
                continue
            if made.primitive in _SUMS:
                terms = made.inputs[:1] if made.primitive == "sub" else made.inputs
                waiting += [each for each in terms if isinstance(each, Value) and each.size == value.size]
            elif made.primitive == "reduce_sum" and has_sums and isinstance(made.inputs[0], Value):
                waiting.append(made.inputs[0])
