"""A stage as a graph of nested nodes, in which equal blocks are folded.

A node is a block, a loop, a branch, a call, an instruction, or a group of these. The nodes directly inside one node are
a level. A fold shows equal nodes of a level as one node. A round is one repetition of a sequence of nodes, such as
`linear, relu` in `linear, relu, linear, relu`.
"""
