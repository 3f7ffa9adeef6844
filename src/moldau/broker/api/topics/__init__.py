"""APIs about topics and about settings."""
