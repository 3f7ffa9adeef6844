"""Avro schemas: parsing with references, canonical texts, compatibility."""
