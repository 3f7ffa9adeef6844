"""Storage: one partition's log as segments of record batches, and the folder that holds them."""
