"""Backends: the only rooms that know an array library. Each is imported when it is first used."""
