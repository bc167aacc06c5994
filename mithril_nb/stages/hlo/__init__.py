"""StableHLO and HLO text, read line by line; each line has the equations it came from."""
