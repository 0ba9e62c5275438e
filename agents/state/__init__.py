"""What agents keep of users while they act."""
