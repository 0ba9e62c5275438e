"""The purchases world: users buy in periods, recommended or not."""
