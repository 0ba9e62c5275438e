"""What people bring: their own logs, read, estimated, examined and planned from."""
