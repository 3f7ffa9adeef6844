"""Runs: queries started, followed and ended, their checkpoints, and replays of the past."""
