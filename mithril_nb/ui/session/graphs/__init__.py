"""Values that a front end shows on graphs."""
