"""Segments: the files of a log's batches, their indexes, and their order.

Which offsets and producers a log takes is said above, by `log`.
"""
