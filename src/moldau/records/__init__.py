"""The record batch v2 format over plain buffers."""
