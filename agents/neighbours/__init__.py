"""Agents that score by similar items or similar users."""
