"""Graphs as pictures: a logical graph or the graph of a stage is laid out as a `Scene`, which is drawn as SVG."""
