"""Files: what all that keeps bytes on disk stands on, open files, durable names, small text files.

What a file means to a log is said by its owner: a segment, an index, a snapshot, a checkpoint.
"""
