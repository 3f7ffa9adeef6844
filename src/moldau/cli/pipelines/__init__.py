"""Pipelines for the command line: their files, their processes, and what they say of themselves."""
