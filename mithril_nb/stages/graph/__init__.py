"""A stage as a graph in levels, equal blocks folded."""
