"""The modules of the API: importing them declares their endpoints."""

from __future__ import annotations

from moldau.console.api import (
    cluster,
    dead_letters,
    group_diagnosis,
    groups,
    lake,
    messages,
    oidc,
    openapi,
    pipelines,
    quotas,
    redrives,
    schemas,
    searches,
    security,
    series,
    session,
    topics,
    transactions,
)

MODULES = (
    *(session, oidc, cluster, topics, messages, searches, groups, group_diagnosis, transactions),
    *(schemas, pipelines, lake, dead_letters, redrives, security, quotas, series, openapi),
)
