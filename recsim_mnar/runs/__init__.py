"""Folders that commands write: one owner at a time, a receipt per file, taken up after a kill."""
