"""The sink: rows to records of topics."""
