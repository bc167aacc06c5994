"""Questions about programs: how two of them differ, how fast one is, what if a setting changes, why it is retraced."""
