"""Agents that act in the worlds: baselines, neighbours, factor models."""
