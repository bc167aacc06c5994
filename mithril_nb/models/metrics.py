"""What a prediction is worth: accuracy, precision, recall, F1, AUC."""

from __future__ import annotations

__all__: list[str] = []
