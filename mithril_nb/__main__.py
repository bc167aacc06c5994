"""Entry point of `python -m mithril_nb`, the same as `mithril-nb`."""

from mithril_nb.cli import main

raise SystemExit(main())
