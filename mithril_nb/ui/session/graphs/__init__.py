"""What a front end shows on graphs."""
