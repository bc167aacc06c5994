"""Questions about an inspected program: how fast is it, what if a setting changes, why is it traced again."""
