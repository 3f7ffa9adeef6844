"""SCRAM in the protocol: mechanisms by number and name, and how many iterations they take."""

from __future__ import annotations

MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
NUMBERS = {name: number for number, name in MECHANISMS.items()}
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

LEAST_ITERATIONS = 4096
MOST_ITERATIONS = 16384
