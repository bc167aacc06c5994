"""The pages of the documentation that run programs: the notebooks, and the gallery.

`make docs` runs `python -m tools.site` in the environment of the documentation, before MkDocs. It writes Markdown to
build/pages, with the outputs of cells in files of their own. tools/site/hook.py gives both to MkDocs.
"""
