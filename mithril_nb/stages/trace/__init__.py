"""A traced program and the provenance of each equation: block, role, transforms, lines of Python."""
