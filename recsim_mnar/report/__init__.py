"""Presentation of a comparison: tables, figures, one page."""
