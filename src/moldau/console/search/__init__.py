"""Searches: a worker process reads a topic and filters it by an SQL expression."""
