"""Files: the base of everything on disk. Open files, durable names, small text files.

What a file means to a log is said by its owner: a segment, an index, a snapshot, a checkpoint.
"""
