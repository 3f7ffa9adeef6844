"""Pipelines through the API: state, rates, lag, batch times, the SQL, the last error."""

from __future__ import annotations

import msgspec

from moldau.console.call import Call
from moldau.console.endpoint import endpoint
from moldau.console.sampling.pipelines import PipelineInfo


class PipelineList(msgspec.Struct):
    pipelines: list[PipelineInfo]


@endpoint("GET", "api/pipelines")
def list_pipelines(call: Call) -> PipelineList:
    """List pipelines: state, rates, lag, batch times, the SQL, the last error."""
    return PipelineList(call.pipelines())
