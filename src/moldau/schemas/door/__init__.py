"""The check at the door: whether the records of a batch are values of the schemas that they name.

`python -m moldau.schemas.door` checks one batch after the other. Avro goes through a compiled loop
over all records of a batch; JSON and Protobuf go through their own libraries.
"""
