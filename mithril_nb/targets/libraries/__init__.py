"""Modules of Flax, Equinox and Haiku: as pure functions, as named scopes, and their training programs."""
