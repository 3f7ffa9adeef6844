"""Segments of a log and the files that they are made of."""
