"""Supervision: keeping pipelines running, and telling others how they are."""
