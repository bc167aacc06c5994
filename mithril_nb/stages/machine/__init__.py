"""Kernels: LLVM IR and machine code."""
