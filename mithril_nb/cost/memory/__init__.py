"""Live ranges of the values of a program: its memory over time, and the blocks that hold it at the peak."""
