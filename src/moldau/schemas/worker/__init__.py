"""A worker process for schemas: parsing and comparing them takes long, and may fail badly.

`python -m moldau.schemas.worker` answers one request after the other on its standard input. Whoever
started it (`process`) gives up on one that takes too long, and starts another.
"""
