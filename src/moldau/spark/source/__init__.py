"""The source: topics as tables and streams."""
