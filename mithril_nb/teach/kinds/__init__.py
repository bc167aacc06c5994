"""The kinds of questions. Each yields candidates about a program, in an order that depends on a seed."""
