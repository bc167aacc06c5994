"""`mithril-nb export` writes a folder with a program that runs without mithril_nb."""

from __future__ import annotations

import argparse

from mithril_nb.cli.target import call_of, find_target

FORMATS = ("numpy", "torch", "mlx", "c", "ggml", "jax", "stablehlo", "onnx", "iree")


def export_target(options: argparse.Namespace) -> int:
    """Write the folder of the target."""
    target = find_target(options.target, bool(options.arg))
    args, keywords = call_of(target, options)
    from mithril_nb.interop import load_params
    from mithril_nb.interop.exporting import export

    params = None if options.params is None else load_params(options.params)
    folder = export(
        target.value, options.output, *args, to=options.to, params=params, overwrite=options.overwrite, **keywords
    )
    files = [path for path in folder.iterdir() if path.is_file()]
    print(f"wrote {folder}, {len(files)} files, {sum(path.stat().st_size for path in files) / 1000:.0f} kB")
    return 0
