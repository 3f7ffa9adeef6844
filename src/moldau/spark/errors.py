"""Errors of the source and the sink."""

from __future__ import annotations

import logging

log = logging.getLogger("moldau.spark")


class OptionError(ValueError):
    """An option that is missing, wrong or not supported; the message names it."""


class DataLoss(Exception):
    """Records that were to be read are not there any more."""


class ReadStalled(Exception):
    """A partition that has records to read gave none for too long."""


class WriteFailed(Exception):
    """Records that a task was to write did not all arrive."""


def report_loss(what: str, fail: bool) -> None:
    """Fail, or log the loss and let the query continue, as `failOnDataLoss` says."""
    if fail:
        raise DataLoss(f"{what}. To continue without them, set the option failOnDataLoss to false")
    log.warning("%s; the query continues, because failOnDataLoss is false", what)


def lost_range(topic: str, partition: int, start: int, end: int, why: str) -> str:
    """Return how a gap reads: which offsets, how many, and why."""
    return (
        f"{topic}-{partition}: offsets {start} to {end - 1} ({end - start} of them) are gone, {why}"
    )
