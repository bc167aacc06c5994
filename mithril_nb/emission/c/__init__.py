"""Emit a traced program as readable C11: functions for blocks, loops over shapes, memory planned by live ranges."""
