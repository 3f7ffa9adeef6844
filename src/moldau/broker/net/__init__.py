"""Connections of clients: bytes in, frames, answers in order, bytes and slices of files out."""
