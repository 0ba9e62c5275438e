"""Estimated propensities: of a rating being revealed, of an item being recommended."""
