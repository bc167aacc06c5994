"""Scripts behind `make`: standard library only, without imports from mithril_nb; they start on Python 3.8 and newer."""
