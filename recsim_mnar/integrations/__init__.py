"""Models of other libraries as policies, and our environments as theirs: see docs/integrations.md."""
