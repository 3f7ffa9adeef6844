"""The schema registry over HTTP, in the API of Confluent's, on every broker that serves HTTP.

`routes` takes requests apart, the modules of operations answer them, `registry` writes, `following`
reads, and `leading` is the way to the broker that leads.
"""
