"""The front end reads queries as Python does: both are compared with `golden/queries.json`.

The test of the front end is `mithril_nb/ui/frontend/tests/query.test.ts`.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from typing import Any

from mithril_nb.errors import UnknownOptionError
from mithril_nb.graph.query import Searchable, parse_query

PIECES = (
    "kind:",
    "block:",
    "flops>",
    "bytes<=",
    "memory=",
    "role:",
    "dtype:",
    "line:",
    "-",
    '"',
    "\\",
    " ",
    " ",
    "1e6",
    "2M",
    "backward",
    "dot",
    ":",
    "<",
    "a/b",
    "*",
    "\u00a0",
    "\n",
    "%2F",
    "\u202e",
    "1KiB",
    ".",
    "head",
    "f64",
    "😀",
    "İ",
    "'",
)
ITEMS = (
    Searchable(
        ("lm_head/linear_1",),
        ("dot_general", "Linear"),
        "backward",
        ("float64",),
        ("train.py:12",),
        {"flops": 2e6, "bytes": None, "memory": 4050},
    ),
    Searchable((), ("parameter",), "", ("float32", "int32"), (), {"memory": 1024}),
    Searchable(
        ("a/b", "HEAD", "İx"),
        ("custom.call",),
        "forward",
        ("bfloat16",),
        ("cell [1]:3", "f.py:1-2"),
        {"flops": 0, "bytes": 1e6, "memory": None},
    ),
    Searchable(("a%2Fb/😀", "line\nbreak"), ("<b>&amp;",), "update", (), (), {}),
    Searchable(("a" * 200 + "bab",), (), "", (), (), {}),
)
QUERIES = (
    "",
    "dot",
    "kind:DOT flops>1e6",
    'block:"line\nbreak"',
    "block:*",
    "block:a",
    "block:b",
    "block:a/b",
    "block:a/*",
    "block:lm*/linear_?",
    "-block:head",
    "dtype:bf16 -flops>0",
    "flops:0",
    "bytes>=1M",
    "memory<=1KiB",
    "memory=1kib",
    "flops>.5e1B",
    "block:(unattributed)",
    'word "two words"',
    "--a",
    'kind:"a\\"b\\\\c\\d"',
    "knd:x",
    "flop>3",
    "flops>x",
    "kind>a",
    "role:x",
    "role:FORWARD",
    '"open',
    '"a"b',
    "-",
    'kind:""',
    "memo:",
    "zip:1",
    "flops>1e999",
    "flops>1_0",
    "f.py:1",
    "line:f.py:1",
    "dtype:pred",
    "Flops<1",
    "i̇x",
    "block:İx",
    f"block:{'a*' * 30}c",
    f"block:*{'a*' * 30}bab",
    "block:*bab*ab",
    "block:a*b*b",
    "block:a**",
    "block:*ba*ab",
)


def test_queries_equal_the_golden_ones(golden) -> None:
    rng = random.Random(20)
    texts = [*QUERIES, *("".join(rng.choices(PIECES, k=rng.randrange(1, 7))) for _ in range(300))]
    text = ",\n".join(json.dumps(case(one)) for one in dict.fromkeys(texts))
    golden("queries.json", f'{{"items": {json.dumps([asdict(item) for item in ITEMS])}, "cases": [\n{text}\n]}}\n')


def case(text: str) -> dict[str, Any]:
    """Return the terms of a query and the numbers of the items that match, or its error."""
    try:
        query = parse_query(text)
    except UnknownOptionError as error:
        first = error.diagnostics[0]
        return {"text": text, "error": [first.summary, first.advice]}
    terms = [[term.key, term.relation, term.value, term.is_negated] for term in query.terms]
    return {"text": text, "terms": terms, "matches": [at for at, item in enumerate(ITEMS) if query.matches(item)]}
