"""The loop of the process that parses and compares schemas."""

from __future__ import annotations

from moldau.schemas.worker.answering import answer
from moldau.schemas.worker.messages import decode_request
from moldau.schemas.worker.serving import serve

if __name__ == "__main__":
    serve(decode_request, answer)
