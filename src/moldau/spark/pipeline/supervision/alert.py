"""Alerts: a command of the user's, run when a pipeline has failed."""

from __future__ import annotations

import os
import subprocess

from moldau.client.pipelines.status import PipelineStatus, encode
from moldau.spark.errors import log

WITHIN_S = 60.0


def run_alert(command: str, status: PipelineStatus, within_s: float = WITHIN_S) -> None:
    """Run the command in a shell, with the status as JSON on its stdin.

    Whatever becomes of it, the pipeline goes on; if it fails, that is logged.
    """
    error = status.last_error
    variables = {
        "MOLDAU_PIPELINE": status.name,
        "MOLDAU_STATE": status.state,
        "MOLDAU_ERROR": "" if error is None else error.message,
    }
    try:
        # A session of its own: what the command starts is ended with it when it takes too long.
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=os.environ | variables,
            start_new_session=True,
        )
    except OSError as problem:
        log.warning("the alert command could not be started: %s", problem.strerror)
        return
    try:
        _, errors = process.communicate(encode(status), timeout=within_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        log.warning("the alert command took longer than %g s and was killed", within_s)
        return
    if process.returncode:
        said = errors.decode(errors="replace").strip().splitlines()
        why = f": {said[-1]}" if said else ""
        log.warning("the alert command failed with status %s%s", process.returncode, why)
