"""The roofline of a machine, with the costs of blocks below it."""
