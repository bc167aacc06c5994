"""The files of a folder with a C program: source, header, weights, stored inputs, and a `main` that checks results."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mithril_nb.emission.c.compiling import STANDARD
from mithril_nb.emission.c.emit import CFile
from mithril_nb.emission.c.types import C_TYPES, c_shape, dims, is_float, pointer_type
from mithril_nb.emission.program import Number, Operand, Value

_MAGIC = b"MNBARRAY"
_READER = """// Read one array: the length of its name, its name, its bytes, and its items.
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


def folder_files(
    file: CFile, arrays: Sequence[Any], expected: Sequence[Any], params: Sequence[bool]
) -> dict[str, bytes]:
    """Return the files of a folder that runs without Python.

    Args:
        file: The emitted file.
        arrays: An array for each input.
        expected: The results for these arrays.
        params: Whether each input is a parameter: parameters are the weights.

    Returns:
        The content of each file by its name. `make test` in the folder compares the results with the expected ones.
    """
    name = file.name
    weights = {
        value.name: array for value, array, is_param in zip(file.inputs, arrays, params, strict=True) if is_param
    }
    inputs = {
        value.name: array for value, array, is_param in zip(file.inputs, arrays, params, strict=True) if not is_param
    }
    results = {f"result_{place}": array for place, array in enumerate(expected)}
    texts = {
        f"{name}.c": file.source.text.replace("#include <math.h>", f'#include "{name}.h"\n\n#include <math.h>', 1),
        f"{name}.h": _header(file),
        "main.c": _main(file, params),
        "Makefile": _makefile(name),
        "README.md": _readme(file),
    }
    return {
        **{path: text.encode() for path, text in texts.items()},
        "weights.bin": _packed(weights),
        "inputs.bin": _packed(inputs),
        "expected.bin": _packed(results),
    }


def _packed(arrays: Mapping[str, Any]) -> bytes:
    """Return arrays in the order of a dict: a mark, then for each array its name, its bytes and its items."""
    parts = [_MAGIC]
    for name, array in arrays.items():
        data = np.ascontiguousarray(array).tobytes()
        parts += [struct.pack("<I", len(name)), name.encode(), struct.pack("<Q", len(data)), data]
    return b"".join(parts)


def _declaration(file: CFile) -> str:
    lines = [line.text for line in file.source.lines]
    first = lines.index(f"void {file.name}(")
    last = next(place for place in range(first, len(lines)) if lines[place] == "{")
    return "\n".join(lines[first:last]).replace("restrict ", "").replace("[restrict", "[")


def _header(file: CFile) -> str:
    guard = f"{file.name.upper()}_H"
    return f"""#ifndef {guard}
#define {guard}

#include <stdbool.h>
#include <stdint.h>

// Bytes of temporary memory: pass as much memory as `arena`. Calls with different memory may run at the same time.
enum {{ {file.name.upper()}_ARENA_BYTES = {file.arena} }};

{_declaration(file)};

#endif
"""


def _main(file: CFile, params: Sequence[bool]) -> str:
    kinds = sorted({C_TYPES[value.dtype] for value in file.outputs})
    lines = [f'#include "{file.name}.h"', ""]
    lines += [f"#include <{each}>" for each in ("math.h", "stdio.h", "stdlib.h", "string.h")]
    lines += ["", _READER, *("\n" + _CHECKER.replace("KIND", kind) for kind in kinds), "", "int main(void)", "{"]
    arguments: list[str] = []
    for path, wanted in (("weights.bin", True), ("inputs.bin", False)):
        stream = path.partition(".")[0] + "_file"
        lines.append(f'    FILE *{stream} = open_arrays("{path}");')
        for value, is_param in zip(file.inputs, params, strict=True):
            if is_param == wanted:
                lines.append(_read("in_" + value.name, value, f'read_array({stream}, "{value.name}", {_bytes(value)})'))
        lines.append(f"    fclose({stream});")
    arguments += [f"in_{value.name}" for value in file.inputs]
    for place, value in enumerate(file.outputs):
        lines.append(_read(f"out_{place}", value, f"malloc({_bytes(value)} + 1)"))
        arguments.append(f"out_{place}")
    lines += [
        f"    char *arena = malloc({file.name.upper()}_ARENA_BYTES + 1);",
        "    if (!arena)",
        "        return 2;",
        f"    {file.name}({', '.join([*arguments, 'arena'])});",
        '    FILE *expected_file = open_arrays("expected.bin");',
        "    int wrong = 0;",
    ]
    for place, value in enumerate(file.outputs):
        kind, name = C_TYPES[value.dtype], value.name if isinstance(value, Value) else f"result {place}"
        tolerance = "1e-12" if value.dtype == "float64" else "1e-5" if is_float(value.dtype) else "0"
        lines.append(f'    {kind} *expected_{place} = read_array(expected_file, "result_{place}", {_bytes(value)});')
        given = f"(const {kind} *)out_{place}, expected_{place}, {_count(value)}, {tolerance}"
        lines += [f'    wrong += differs_{kind}("{name}", {given});', f"    free(expected_{place});"]
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


def _makefile(name: str) -> str:
    return f"""CFLAGS ?= -O3 -march=native -Wall -Wextra
override CFLAGS += {" ".join(STANDARD)}

{name}: {name}.c main.c {name}.h
\t$(CC) $(CFLAGS) -o $@ {name}.c main.c -lm

test: {name}
\t./{name}

clean:
\trm -f {name}

.PHONY: test clean
"""


def _readme(file: CFile) -> str:
    return f"""# {file.name}

One C11 file without dependencies but libm, written by mithril_nb from the program that JAX traced. It needs
{file.arena:,} bytes of temporary memory.

```sh
make        # compiles {file.name}.c and main.c
make test   # runs it with the stored inputs, and compares its results with JAX's
```

| file | contents |
|---|---|
| `{file.name}.c`, `{file.name}.h` | the program: one function per block |
| `main.c` | reads the arrays, calls the program, compares the results |
| `weights.bin`, `inputs.bin`, `expected.bin` | arrays: see below |

A file of arrays starts with `MNBARRAY`. An array is the length of its name (uint32), its name, the number of its bytes
(uint64) and its items.

The code in this folder is yours: use it under any license.
"""
