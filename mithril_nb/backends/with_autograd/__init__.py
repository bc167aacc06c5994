"""Import paths of the user's documents; the classes live in `mithril_nb.backends`."""
