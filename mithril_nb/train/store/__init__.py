"""The store of runs: `ml.track` writes any training loop into it, and `ml.runs` finds runs again."""
