"""Pipeline files: what one may say, and where in it something stands. No Spark, no broker."""
