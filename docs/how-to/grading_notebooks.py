"""Write the source notebook of an assignment for nbgrader or Otter, from a text with marked cells."""

from __future__ import annotations

import re

from nbformat.v4 import new_code_cell, new_notebook, new_raw_cell

KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
_SOLUTION = re.compile(r"^( *)(.*)  # SOLUTION$", re.MULTILINE)


def cells_of(text):
    """Yield name, part and source of each cell. The line `# %% cost: answer` begins the part `answer` of `cost`."""
    for cell in text.split("# %% ")[1:]:
        heading, _, source = cell.partition("\n")
        name, _, part = heading.partition(": ")
        yield name, part, source.strip()


def for_nbgrader(text):
    """Return the notebook with the metadata that nbgrader reads. A student can edit only the answers."""
    cells = []
    for name, part, source in cells_of(text):
        source = _SOLUTION.sub(r"\1### BEGIN SOLUTION\n\1\2\n\1### END SOLUTION", source)
        settings = {"grade": part == "test", "solution": part == "answer", "locked": part != "answer", "task": False}
        settings |= {"grade_id": f"{name}-{part}", "cell_type": "code", "schema_version": 3}
        if part == "test":
            source = f"### BEGIN HIDDEN TESTS\n{source}\n### END HIDDEN TESTS"
            settings["points"] = 1
        cells.append(new_code_cell(source, metadata={"nbgrader": settings}))
    return new_notebook(cells=cells, metadata={"kernelspec": KERNEL})


def for_otter(text):
    """Return the notebook with the raw cells that Otter Assign reads."""
    cells = [new_raw_cell("# ASSIGNMENT CONFIG\nname: assignment")]
    for name, part, source in cells_of(text):
        if part == "question":
            cells += [new_raw_cell(f"# BEGIN QUESTION\nname: {name}\npoints: 1"), new_code_cell(source)]
        elif part == "answer":
            cells += [new_raw_cell("# BEGIN SOLUTION"), new_code_cell(source), new_raw_cell("# END SOLUTION")]
        else:
            cells += [new_raw_cell("# BEGIN TESTS"), new_code_cell(f"# HIDDEN\n{source}"), new_raw_cell("# END TESTS")]
            cells.append(new_raw_cell("# END QUESTION"))
    return new_notebook(cells=cells, metadata={"kernelspec": KERNEL})


def passed(text, answers):
    """Return the names of the tests that pass with the sources of some answers, as a grader runs the cells."""
    names, right = {}, []
    for name, part, source in cells_of(text):
        try:
            exec(answers.get(name, source) if part == "answer" else source, names)
        except Exception:  # a grader continues with the next cell
            continue
        right += [name] if part == "test" else []
    return right
