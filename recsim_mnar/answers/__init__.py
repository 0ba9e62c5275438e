"""Answers to a question about a log: a record per policy and estimator, segments, and the sentence that says them."""
