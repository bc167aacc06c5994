"""StableHLO and HLO, read line by line, each with the equations it came from."""
