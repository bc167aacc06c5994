"""Specs of every connection of a graph, from the rules of its blocks."""
