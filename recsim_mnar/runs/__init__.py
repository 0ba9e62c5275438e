"""Folders that commands write: one writer at a time, a receipt per file, taken up after a kill."""
