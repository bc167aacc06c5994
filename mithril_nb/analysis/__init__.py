"""Questions about an inspected program: how does it differ from another, how fast is it, what if a setting changes, why is it traced again."""
