"""A traced program and what each of its equations came from: block, role, transforms, lines of Python."""
