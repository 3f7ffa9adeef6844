"""Samples of the cluster, taken every few seconds, and what follows from them."""
