"""Diagrams of graphs: a model or a stage becomes a `NestedGraph`, then a `Scene` with positions, and then SVG."""
