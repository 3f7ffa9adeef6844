"""The load processes: one task each, told as JSON, answered as one line of JSON."""
