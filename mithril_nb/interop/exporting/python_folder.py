"""A folder whose program is a Python file, model.py; test.py runs it with the stored inputs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mithril_nb.emission.python_text import tree_of
from mithril_nb.interop.exporting.formats import TESTED, Contents
from mithril_nb.interop.exporting.stored import Stored, StoredProgram

WIDE = 'import jax\n\njax.config.update("jax_enable_x64", True)\n'
"""Lines that import JAX and turn on its x64 mode."""


@dataclass(frozen=True)
class Loading:
    """Source code that reads arrays with a library.

    Attributes:
        title: Name of the library.
        package: Packages to install, separated by spaces.
        imports: Import lines of the file test.py.
        load: Expression that returns a dict of the arrays in the file `path`.
        plain: Expression that converts the array `found` to NumPy.
        key: Expression that creates a random key, with `{}` instead of the array of its uint32 numbers.
    """

    title: str
    package: str
    imports: tuple[str, ...]
    load: str
    plain: str = "np.asarray(found)"
    key: str = "{}"


def python_contents(
    program: StoredProgram,
    text: str,
    function: str,
    loading: Loading,
    more: Mapping[str, tuple[str | bytes, str]] | None = None,
    notes: str = "",
    call: str = "",
    about: str = "the program: one function per block, and `{function}`, which calls them",
) -> Contents:
    """Return the files of a folder with a Python program.

    Args:
        program: The program.
        text: The source of `model.py`.
        function: Name of the function in `text` that runs the whole program.
        loading: Source code that reads the arrays.
        more: Content and description of further files, by name.
        notes: A further paragraph of the README.
        call: Expression that runs the program; by default, a call of `function` with all arguments.
        about: Description of `model.py`.
    """
    call = call or f"{function}({', '.join(arguments(program, loading.key))})"
    names = "".join(f"    {entry.name!r},\n" for entry in program.outputs)
    files: dict[str, str | bytes] = {"model.py": text, "test.py": _test(call, function, loading, names)}
    lines = {"model.py": about.format(function=function), "test.py": "runs the program with the stored inputs"}
    if program.sizes:
        stored = ", ".join(f"{name} = {number}" for name, number in program.sizes.items())
        names = (
            f"Sizes with names can be any number from 1 on that the program accepts; the stored inputs have {stored}."
        )
        notes = f"{names}\n\n{notes}".strip()
    for name, (content, line) in (more or {}).items():
        files[name], lines[name] = content, line
    return Contents(
        f"{program.name} in {loading.title}",
        files,
        lines,
        ((f"pip install {loading.package}", "once"), ("python test.py", TESTED)),
        notes,
    )


def arguments(program: StoredProgram, key: str = "{}") -> list[str]:
    """Return the source of each argument of the program, an expression with the dicts `weights` and `inputs`.

    `key` is the source of a random key, with `{}` instead of the array of its uint32 numbers.
    """
    names = dict.fromkeys(entry.leaf.argument for entry in program.inputs)
    leaves = {name: [entry for entry in program.inputs if entry.leaf.argument == name] for name in names}
    return [_argument(name, own, program, key) for name, own in leaves.items()]


def _argument(name: str, own: Sequence[Stored], program: StoredProgram, key: str) -> str:
    texts = {
        entry.leaf: (key if entry.leaf.spec.dtype.startswith("key<") else "{}").format(f"{entry.file}[{entry.name!r}]")
        for entry in own
    }
    is_flat = all(len(entry.leaf.keys) == 1 and entry.leaf.name == f"{name}[{entry.name!r}]" for entry in own)
    file = own[0].file
    if is_flat and len(own) == len(program.arrays[file]):
        text = file
    else:
        text = tree_of([entry.leaf for entry in own], texts.__getitem__, False)
    return f"{name}={text}" if name.isidentifier() else text


def _test(call: str, function: str, loading: Loading, names: str) -> str:
    standard = [
        "import sys",
        "from pathlib import Path",
        *(["from types import SimpleNamespace"] * ("SimpleN" in call)),
    ]
    libraries = sorted({*loading.imports, "import numpy as np"}, key=lambda line: line.split()[1])
    return _TEST.format(
        standard="\n".join(standard),
        libraries="\n".join(libraries),
        function=function,
        load=re.sub(r"\bpath\b", 'FOLDER / f"{name}.safetensors"', loading.load),
        plain=loading.plain,
        call=call,
        names=names,
    )


_TEST = '''\
"""Run model.py with the stored inputs, and compare its results with those that JAX computed."""

{standard}

{libraries}

from model import {function}

FOLDER = Path(__file__).parent
TOLERANCES = {{"float64": 1e-12, "float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-1, "complex64": 1e-4}}
NAMES = (  # of the results in expected.safetensors, in order
{names})


def load(name):
    """Return the arrays of a file by name."""
    return {load}


def flat(tree):
    """Return the arrays of nested dicts and tuples, in order."""
    if not isinstance(tree, (dict, tuple, list)):
        return [] if tree is None else [tree]
    return [one for inner in (tree.values() if isinstance(tree, dict) else tree) for one in flat(inner)]


def plain(found):
    """Return an array as a NumPy array."""
    return {plain}


def relative_error(found, wanted):
    """Return max|a - b| / max|b|; infinite or NaN if the shapes differ, or NaN and infinities are in other places."""
    if wanted.dtype.kind in "biu":
        return 0 if np.array_equal(found, wanted) else np.inf
    kind = np.complex128 if wanted.dtype.kind == "c" else np.float64
    found, wanted = np.asarray(found, kind), np.asarray(wanted, kind)
    is_finite = np.isfinite(wanted)
    if found.shape != wanted.shape or not np.array_equal(found[~is_finite], wanted[~is_finite], equal_nan=True):
        return np.inf
    difference = np.abs(found - wanted)[is_finite].max(initial=0)
    return difference / max(np.abs(wanted[is_finite]).max(initial=0), 1e-30) if difference > 0 else difference


weights, inputs, expected = load("weights"), load("inputs"), load("expected")
results = flat({call})
wrong = 0
for name, found in zip(NAMES, results):
    wanted = expected[name]
    error = relative_error(plain(found), plain(wanted))
    is_ok = error <= TOLERANCES.get(str(wanted.dtype).rpartition(".")[2], 0)
    wrong += not is_ok
    print(f"{{name:40}} {{error:9.2g}}  {{'ok' if is_ok else 'differs'}}")
sys.exit(wrong > 0 or len(results) != len(NAMES))
'''
