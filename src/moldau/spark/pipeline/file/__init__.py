"""Pipeline files: their settings and the lines of those. No Spark, no broker."""
