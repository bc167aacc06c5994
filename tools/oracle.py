"""Dump all results for the programs of the corpus, to prove that a change of the code changes none of them.

    python -m tools.oracle before      # at the old commit
    python -m tools.oracle after       # at the new one
    diff -r before after

Times are left out; everything else is the same in two runs of one commit.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from itertools import permutations

import mithril_nb as ml
from benchmarks.corpus import corpus
from mithril_nb.inspection import Inspection

_TIMES = {"elapsed", "elapsed_s"}
_COSTS = ("analytic", "lowered", "compiled")
_LINKED = ("python", "graph", "jaxpr", "stablehlo", "hlo")


def _timeless(text: str) -> str:
    def dropped(value: object) -> object:
        if isinstance(value, dict):
            return {key: dropped(item) for key, item in value.items() if key not in _TIMES}
        return [*map(dropped, value)] if isinstance(value, list) else value

    return json.dumps(dropped(json.loads(text)), indent=1)


def _exported(program: Inspection) -> str:
    with tempfile.TemporaryDirectory() as folder:
        ml.export(program, folder, to="onnx", overwrite=True)
        files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return "\n".join(f"{path.relative_to(folder)} {path.stat().st_size}" for path in files)


def _texts(program: Inspection) -> Iterator[tuple[str, Callable[[], str]]]:
    yield "summary.txt", lambda: str(program)
    yield "program.json", lambda: _timeless(program.to_json())
    for source in _COSTS:
        yield f"cost_{source}.json", lambda source=source: _timeless(program.cost(source).to_json())
        yield f"by_line_{source}.txt", lambda source=source: str(program.cost(source).by_line)
    for pair in permutations(_LINKED, 2):
        yield (
            f"links_{'_'.join(pair)}.txt",
            lambda pair=pair: json.dumps(
                {row: sorted(rows) for row, rows in sorted(program.links(*pair).items())}, indent=1
            ),
        )
    for stage in ("jaxpr", "stablehlo", "hlo"):
        yield f"graph_{stage}.txt", lambda stage=stage: repr(program.graph(stage)).replace("), ", "),\n")
    yield "page.html", program.to_html
    for stage in program.every_stage[program.every_stage.index("numpy") :]:
        yield f"emitted_{stage}.txt", lambda stage=stage: program.stage(stage).unavailable or program.stage(stage).text
    yield "exported_onnx.txt", lambda: _exported(program)


def main(folder: str, pattern: str = "") -> None:
    """Write the dumps of the corpus programs whose names match a pattern."""
    for name, make in corpus().items():
        if not re.search(pattern, name):
            continue
        target, args = make()
        program = ml.inspect(target, *args)
        out = Path(folder) / re.sub(r"\W+", "_", name)
        out.mkdir(parents=True, exist_ok=True)
        for file, text in _texts(program):
            try:
                written = text()
            except Exception as error:  # a refusal is a result too
                written = f"{type(error).__name__}: {error}"
            (out / file).write_text(re.sub(r" at 0x[0-9a-f]+", "", written))
        print(name, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
