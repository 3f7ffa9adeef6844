"""The settings of log lines: their form, and what is worth one."""

from __future__ import annotations

from moldau.broker.settings.shares import ShareSettings
from moldau.settings import INT_MAX, setting


class LogLineSettings(ShareSettings):
    """What a broker logs of itself on stderr."""

    log_format: str = setting(
        "log.format",
        "text",
        "The format of log lines: text for people, or JSON objects for programs.",
        choices=("text", "json"),
    )
    log_slow_request_ms: int = setting(
        "log.slow.request.ms",
        1000,
        "Requests that take longer are logged, with what they waited for, unless their clients "
        "asked for the wait.",
        minimum=1,
        maximum=INT_MAX,
        dynamic=True,
    )
    log_level: str = setting(
        "log.level",
        "INFO",
        "The lowest level to log.",
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
    )
