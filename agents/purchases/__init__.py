"""Agents that learn from purchases and recommendations."""
