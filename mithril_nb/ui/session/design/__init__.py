"""The design of a workbench: its value, its edits, its analysis, and how it is saved."""
