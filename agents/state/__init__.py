"""State that agents keep per user while they act."""
