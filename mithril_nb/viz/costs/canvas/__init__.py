"""Shapes, axes, labels and layouts of cost pictures."""
