"""Memory of a program over time, from the live ranges of its values, and the blocks that hold it at the peak."""
