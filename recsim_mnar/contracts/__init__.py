"""What policies, worlds, vector environments, protocols and estimators must keep: rules, and findings in sentences."""
