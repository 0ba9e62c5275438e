"""Any CSV, Parquet or Arrow file as checked columns, whole or in blocks, with all its faults at once."""
