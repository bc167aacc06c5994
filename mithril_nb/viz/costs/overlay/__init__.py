"""A graph coloured by costs."""
