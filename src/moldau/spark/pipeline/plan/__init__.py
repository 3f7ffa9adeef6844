"""Plans: sources, tables and sinks of a file as Spark understands them, and what is wrong there."""
