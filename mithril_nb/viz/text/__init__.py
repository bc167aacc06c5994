"""Text for any output: escaping, numbers with units, columns, and widths without fonts."""
