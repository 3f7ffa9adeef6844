"""Iceberg tables: the same modes and promises as Delta tables, by name in a catalog.

Tasks need nothing but Arrow to write files; the driver, and tasks that merge, need pyiceberg.
"""
