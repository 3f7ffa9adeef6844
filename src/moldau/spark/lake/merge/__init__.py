"""Merges: rows of a batch into a table by their keys, on the executors.

Tasks find the files that hold keys of the batch and rewrite those, a row group at a time; the
driver gets names of files and numbers of rows, and commits. What the commit says is elsewhere, in
`moldau.spark.lake.sink`.
"""
