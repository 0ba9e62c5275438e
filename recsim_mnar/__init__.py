"""Simulated people, recommendations and logs whose known truth judges evaluation protocols."""

__version__ = "0.1.0"
