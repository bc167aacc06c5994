"""Import paths of the Mithril documentation. The classes are defined in `mithril_nb.backends`."""
