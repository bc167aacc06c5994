"""Scripts behind `make`: standard library only, no package of ours, and readable by any Python from 3.8 on."""
