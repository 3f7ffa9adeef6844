"""The loop of the process that checks batches."""

from __future__ import annotations

from moldau.schemas.door.checking import Checker
from moldau.schemas.door.messages import decode_request
from moldau.schemas.worker.serving import serve

if __name__ == "__main__":
    serve(decode_request, Checker().check)
