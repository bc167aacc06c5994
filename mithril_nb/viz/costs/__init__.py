"""Pictures of costs: plain data in, a `Drawing` out, which is an SVG and the same as text."""
