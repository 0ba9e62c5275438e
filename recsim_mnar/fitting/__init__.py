"""Fitting a world to a log, and judging the fit."""
