"""Colours of the report's figures."""

from __future__ import annotations

INK = "#1f2937"
"""Of axes and writing; a page puts its own in the place of it."""
LINE = "#e5e7eb"
"""Of grids."""
TRUTH = "#111827"
"""Of what is known."""

BEST_COLOUR, LEVEL_COLOUR, COSTS_COLOUR = "#2b8a3e", "#f08c00", "#c92a2a"
CYCLE = ("#c2255c", "#9c36b5", "#e8590c", "#1971c2", "#2f9e44", "#f08c00", "#0c8599", "#6741d9", "#868e96")
COUNTS, CLIP = "#4c6ef5", "#e8590c"
"""Of histograms, and of the line where weights are clipped."""
