"""Producers of a log: who wrote what last, their snapshots on disk, and their transactions.

Which producer ids there are is the cluster's business.
"""
