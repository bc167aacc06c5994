"""Stages, graphs, passes and transforms for a front end, computed in the background."""
