"""What another policy would have done on a log, and what it would have earned."""
