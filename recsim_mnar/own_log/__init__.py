"""Users' own logs, read, estimated, examined and planned from."""
