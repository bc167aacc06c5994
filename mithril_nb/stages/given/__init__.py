"""Programs that were not traced here: StableHLO, HLO and exported programs, read with the links in their op names."""
