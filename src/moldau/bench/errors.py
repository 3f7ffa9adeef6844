"""Errors of a measurement."""

from __future__ import annotations


class BenchFailed(Exception):
    """A process of the bench died, answered nonsense or took too long; or a count is wrong."""


class Unavailable(Exception):
    """A measurement cannot be taken on this machine; the text says why."""
