"""The compilation of a program by XLA, and the files XLA writes: passes, memory, kernels and their code."""
