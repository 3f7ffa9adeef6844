"""Inspections: what the files of a log hold and whether they are whole, without a broker."""
