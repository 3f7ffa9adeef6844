"""Protobuf schemas: parsing with references, canonical texts, compatibility.

Google's own compiler parses `.proto` texts, from the wheel `grpcio-tools`: no other parser in
Python checks as much or knows all of proto2, proto3 and editions. It runs in this process, so
programs that must not wait or fail with it run it in one of their own.
"""
