"""Producers: partitioning, delivery, reports."""
