"""Models as plain data, files and source code."""
