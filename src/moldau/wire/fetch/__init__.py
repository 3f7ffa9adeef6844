"""Fetch on the wire, by hand since it is hot: requests, responses and sessions, without I/O.

Brokers, followers and Spark tasks share the values and the codec. No records are copied here.
"""
