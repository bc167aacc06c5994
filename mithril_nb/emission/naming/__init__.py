"""Name the functions and arrays of a program after ports, parameters, operations and gradients."""
