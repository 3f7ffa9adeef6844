"""JSON Schemas: parsing with references, canonical texts, compatibility."""
