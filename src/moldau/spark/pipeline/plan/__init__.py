"""Plans: the sources, tables and sinks of a file in Spark, and their problems."""
