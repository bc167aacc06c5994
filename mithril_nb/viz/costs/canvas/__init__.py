"""Drawing tools for pictures of costs: an SVG canvas, axes, and the placement of names."""
