"""Consumers: fetching, streams, positions."""
