"""Protocols: ways of judging agents, and the comparison of those ways with the truth."""
