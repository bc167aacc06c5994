"""Tables of costs, as text and as HTML."""
