"""`mithril-nb find` lists the equations or blocks that match a query."""

from __future__ import annotations

import argparse

from mithril_nb.cli.target import find_target, inspection_of, shapes_of
from mithril_nb.cli.terminal import say, say_json
from mithril_nb.graph.query import parse_query
from mithril_nb.models.model import Model


def find_matches(options: argparse.Namespace) -> int:
    """Print the matches: blocks of a model without shapes, else equations or instructions of a program."""
    from mithril_nb.viz.search_results import result_text

    query = parse_query(options.query)  # before a compilation, which may take long
    target = find_target(options.target, bool(options.arg))
    is_named = not {*query.keys} - {"block", "kind"}
    needs_program = options.arg or options.program or options.stage or shapes_of(options.shape)
    if target.graph is not None and is_named and not needs_program:
        matches = Model.of(target.graph, target.title).find(options.query)
    else:
        matches = inspection_of(target, options).find(options.query, options.stage)
    if options.json:
        say_json(matches.to_dict())
    else:
        say(result_text(matches, None))
    return 0
