"""What each instruction of HLO costs, as XLA counts it, and what XLA itself says."""
