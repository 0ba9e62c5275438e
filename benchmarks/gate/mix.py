"""Which logs the gate is judged on: fixed before it was run on any of them."""

MIX = {"sessions": 3000, "ratings": 1500, "purchases": 1500, "generator": 4000}
"""Logs from each source. Those of the generator come from all its settings in turn, fresh families included."""

POPULATION = 20_000
"""Users of a world that are simulated once; a log is a draw of some of them."""

USERS = (30, 100, 300, 1000, 3000)
"""Users a log of a world, in turn."""

RELATIVE_ERROR = 0.2
"""A log is bad where the estimate is further from the truth than this share of it."""

LEAST_OVERLAP, LEAST_EFFECTIVE = 0.8, 1000.0
"""The published rule: blocked below either."""
