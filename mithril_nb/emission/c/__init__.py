"""Readable C11 from a traced program: one function per block, loops with shapes, memory planned by live ranges."""
