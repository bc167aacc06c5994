"""Memory over a run: its layers, their picture and their text."""
