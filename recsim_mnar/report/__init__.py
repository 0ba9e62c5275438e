"""What a comparison looks like: tables, figures, one page."""
