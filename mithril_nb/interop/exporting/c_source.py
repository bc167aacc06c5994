"""The export format `c`: source, header, Makefile, and a `main` that checks the results, all without Python."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mithril_nb.emission.c.compiling import STANDARD
from mithril_nb.emission.c.emit import CFile, emit
from mithril_nb.emission.c.types import C_TYPES, c_shape, dims, is_float, pointer_type
from mithril_nb.emission.program import Number, Operand, Value
from mithril_nb.interop.exporting.folder import TESTED, Contents, export_format
from mithril_nb.interop.exporting.stored import StoredProgram

_MAGIC = b"MNBARRAY"
_READER = """// Read one array: the length of its name, its name, the number of its bytes, and its items.
static void *read_array(FILE *file, const char *name, size_t bytes)
{
    uint32_t length = 0;
    uint64_t stored = 0;
    char found[256] = "";
    if (fread(&length, sizeof length, 1, file) != 1 || length >= sizeof found || fread(found, 1, length, file) != length
        || strcmp(found, name) != 0 || fread(&stored, sizeof stored, 1, file) != 1 || stored != bytes) {
        fprintf(stderr, "expected array %s of %zu bytes, found %s of %llu\\n", name, bytes, found,
                (unsigned long long)stored);
        exit(2);
    }
    void *items = malloc(bytes + 1);
    if (!items || fread(items, 1, bytes, file) != bytes) {
        fprintf(stderr, "array %s is cut off\\n", name);
        exit(2);
    }
    return items;
}

static FILE *open_arrays(const char *path)
{
    char magic[8] = "";
    FILE *file = fopen(path, "rb");
    if (!file || fread(magic, 1, sizeof magic, file) != sizeof magic || memcmp(magic, "MNBARRAY", sizeof magic) != 0) {
        fprintf(stderr, "%s is missing, or not a file of arrays\\n", path);
        exit(2);
    }
    return file;
}"""
_CHECKER = """// Print max|a - b| / max|b|, and return whether it is above the tolerance.
static int differs_KIND(const char *name, const KIND *found, const KIND *expected, size_t count, double tolerance)
{
    double difference = 0, largest = 0;
    int is_other = 0;
    for (size_t i = 0; i < count; i++) {
        const double a = (double)found[i], b = (double)expected[i];
        if (isfinite(b)) {
            largest = fmax(largest, fabs(b));
            difference = isfinite(a) ? fmax(difference, fabs(a - b)) : INFINITY;
        } else {
            is_other |= isnan(b) ? !isnan(a) : a != b;
        }
    }
    const double relative = difference > 0 ? difference / fmax(largest, 1e-30) : 0;
    const int is_wrong = is_other || !(relative <= tolerance);
    printf("%-40s %9.2g  %s\\n", name, relative, is_wrong ? "differs" : "ok");
    return is_wrong;
}"""


@export_format("c")
def c_folder(program: StoredProgram) -> Contents:
    """Return the contents of a folder with the program in C11, and a `main` that checks the results."""
    file = emit(program.traced)
    is_param = [entry.file == "weights" for entry in program.inputs]
    named = list(zip(file.inputs, program.inputs, strict=True))
    results = {f"result_{index}": entry.array for index, entry in enumerate(program.outputs)}
    # The compiler then checks the declaration against the definition.
    text = file.source.text.replace("#include <math.h>", '#include "model.h"\n\n#include <math.h>', 1)
    return Contents(
        f"{program.name} in C",
        {
            "model.c": text,
            "model.h": _header(file),
            "main.c": _main(file, is_param),
            "Makefile": _MAKEFILE,
            "weights.bin": _packed({value.name: entry.array for value, entry in named if entry.file == "weights"}),
            "inputs.bin": _packed({value.name: entry.array for value, entry in named if entry.file == "inputs"}),
            "expected.bin": _packed(results),
        },
        {
            "model.c": f"the program: one function per block, and `{file.name}`, which calls them; needs only libm",
            "model.h": f"the declaration of `{file.name}`",
            "main.c": "reads the arrays, calls the program, compares the results",
            "weights.bin, inputs.bin, expected.bin": "the arrays in a simple format, which `main.c` reads",
        },
        (("make", "compiles model.c and main.c"), ("make test", TESTED)),
        f"""The program needs {file.arena:,} bytes of temporary memory.

A `.bin` file contains the text `MNBARRAY`, and then the arrays. For each array, it contains the length of the name
(uint32), the name, the number of bytes of the items (uint64), and the items.""",
    )


def _packed(arrays: Mapping[str, Any]) -> bytes:
    parts = [_MAGIC]
    for name, array in arrays.items():
        data = np.ascontiguousarray(array).tobytes()
        parts += [struct.pack("<I", len(name)), name.encode(), struct.pack("<Q", len(data)), data]
    return b"".join(parts)


def _header(file: CFile) -> str:
    lines = [line.text for line in file.source.lines]
    first = lines.index(f"void {file.name}(")
    declaration = "\n".join(lines[first : lines.index("{", first)])
    declaration = declaration.replace("restrict ", "").replace("[restrict", "[")  # not part of the type; C++ lacks it
    return f"""#ifndef MODEL_H
#define MODEL_H

#include <stdbool.h>
#include <stdint.h>

// Bytes of temporary memory to pass as `arena`. Calls with different arenas may run at the same time.
enum {{ {file.name.upper()}_ARENA_BYTES = {file.arena} }};

{declaration};

#endif
"""


def _main(file: CFile, params: Sequence[bool]) -> str:
    # C has no generic functions, so each type of a result gets its own comparison.
    kinds = sorted({C_TYPES[value.dtype] for value in file.outputs})
    lines = ['#include "model.h"', ""]
    lines += [f"#include <{each}>" for each in ("math.h", "stdio.h", "stdlib.h", "string.h")]
    lines += ["", _READER, *("\n" + _CHECKER.replace("KIND", kind) for kind in kinds), "", "int main(void)", "{"]
    arguments: list[str] = []
    # The reader goes through a file in order, so the arrays are read in the order in which they were stored.
    for path, takes_params in (("weights.bin", True), ("inputs.bin", False)):
        stream = path.partition(".")[0] + "_file"
        lines.append(f'    FILE *{stream} = open_arrays("{path}");')
        for value, is_param in zip(file.inputs, params, strict=True):
            if is_param == takes_params:
                lines.append(_read("in_" + value.name, value, f'read_array({stream}, "{value.name}", {_bytes(value)})'))
        lines.append(f"    fclose({stream});")
    arguments += [f"in_{value.name}" for value in file.inputs]
    for index, value in enumerate(file.outputs):
        # malloc(0) may return NULL, which means a lack of memory everywhere else.
        lines.append(_read(f"out_{index}", value, f"malloc({_bytes(value)} + 1)"))
        arguments.append(f"out_{index}")
    lines += [
        f"    char *arena = malloc({file.name.upper()}_ARENA_BYTES + 1);",
        "    if (!arena)",
        "        return 2;",
        f"    {file.name}({', '.join([*arguments, 'arena'])});",
        '    FILE *expected_file = open_arrays("expected.bin");',
        "    int wrong = 0;",
    ]
    for index, value in enumerate(file.outputs):
        kind, name = C_TYPES[value.dtype], value.name if isinstance(value, Value) else f"result {index}"
        # Relative to the largest item; integers must be equal.
        tolerance = "1e-12" if value.dtype == "float64" else "1e-4" if is_float(value.dtype) else "0"
        lines.append(f'    {kind} *expected_{index} = read_array(expected_file, "result_{index}", {_bytes(value)});')
        args = f"(const {kind} *)out_{index}, expected_{index}, {_count(value)}, {tolerance}"
        lines += [f'    wrong += differs_{kind}("{name}", {args});', f"    free(expected_{index});"]
    lines.append("    fclose(expected_file);")
    lines += [f"    free({name});" for name in (*arguments, "arena")]
    lines += ["    return wrong ? 1 : 0;", "}", ""]
    return "\n".join(lines)


def _read(name: str, value: Operand, text: str) -> str:
    before, after = pointer_type(value.dtype, _shape(value))
    return f"    {before}{name}{after} = {text};  // {dims(_shape(value))}"


def _shape(value: Operand) -> tuple[int, ...]:
    return () if isinstance(value, Number) else c_shape(value)


def _count(value: Operand) -> int:
    return int(np.prod(_shape(value), dtype="int64"))


def _bytes(value: Operand) -> str:
    return f"{_count(value)} * sizeof({C_TYPES[value.dtype]})"


_MAKEFILE = f"""CFLAGS ?= -O3 -march=native -Wall -Wextra
override CFLAGS += {" ".join(STANDARD)}

model: model.c main.c model.h
\t$(CC) $(CFLAGS) -o $@ model.c main.c -lm

test: model
\t./model

clean:
\trm -f model

.PHONY: test clean
"""
