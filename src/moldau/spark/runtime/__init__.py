"""Spark itself: Java, sessions, workers, and how this package gets to them."""
