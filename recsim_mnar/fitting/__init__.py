"""Fitting a world to a log, judging the fit, and advice on recommenders."""
