"""Pictures of costs. Each function takes plain data and returns a `Drawing`: an SVG, and the same content as text."""
