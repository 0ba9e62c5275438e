"""Learning from logs: softmax policies on a user's history, fitted to recorded outcomes and their propensities."""
