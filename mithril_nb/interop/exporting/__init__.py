"""`ml.export`: a folder with a program as source, its weights and a test, which runs without mithril_nb."""

from mithril_nb.interop.exporting.export import export
from mithril_nb.interop.exporting.folder import Contents, export_format

__all__ = ["Contents", "export", "export_format"]
