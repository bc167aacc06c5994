"""The loops of each primitive, one file per family. Importing a file registers its rules."""
