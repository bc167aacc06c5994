"""What XLA makes of a program, and what it writes down on the way: passes, memory, kernels."""
