"""Scopes of equations that JAX hoisted out of a scan."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from mithril_nb.stages import jax_versions
from mithril_nb.stages.trace.equations import Site


def restore_hoisted_scopes(sites: list[Site]) -> None:
    """Add the scopes of a scan to the equations that JAX hoisted out of it.

    Reverse mode computes loop invariants once, before the scan, and gives them only the scopes of the body.
    """
    scans: dict[str, Site] = {}
    for site in reversed(sites):
        for jaxpr, _ in site.bodies if site.primitive == "scan" else ():
            scans[jax_versions.start_of(jaxpr)] = site
        scan = scans.get(_outermost(site.equation.source_info.traceback)) if scans else None
        if scan is not None and not _is_inside(site, scan):
            site.stack = scan.stack + jax_versions.name_stack(site.equation)


@lru_cache(maxsize=8192)
def _outermost(traceback: Any) -> str:
    """Return where the function from which an equation was traced begins, as `"file.py:12"`."""
    frames = jax_versions.frames(traceback)
    return f"{frames[-1].co_filename}:{frames[-1].co_firstlineno}" if frames else ""


def _is_inside(site: Site, scan: Site) -> bool:
    """Return whether an equation is in the body of a scan over the same function as the given scan."""
    starts = {jax_versions.start_of(jaxpr) for jaxpr, _ in scan.bodies}
    while site.parent is not None:
        site = site.parent
        if any(jax_versions.start_of(jaxpr) in starts for jaxpr, _ in site.bodies):
            return True
    return False
