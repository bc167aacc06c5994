"""From when to when a program keeps each value: its memory over time, and who holds it at the peak."""
