"""`python -m mithril_nb` is `mithril-nb`."""

from mithril_nb.cli import main

raise SystemExit(main())
