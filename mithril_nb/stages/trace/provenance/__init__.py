"""The origin of each equation: block, role, scopes, functions and lines of Python."""
