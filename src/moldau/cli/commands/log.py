"""`moldau log`: check and dump the files of logs, with or without a broker running on them."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from moldau.cli.options import Json
from moldau.cli.views.output import Failure, ProgressBar, show, show_json, show_table
from moldau.log.errors import StorageError
from moldau.log.inspections.inspection import (
    Damage,
    LogReport,
    SegmentReport,
    check_log,
    log_folders,
    segment_files,
    walk,
)
from moldau.records.batch import BatchError, BatchHeader
from moldau.records.compression import Codec
from moldau.records.record import Record, end_marker_of, records_of

app = typer.Typer(no_args_is_help=True, help="Inspect log files; nothing is changed.")

Folder = Annotated[
    str,
    typer.Argument(
        metavar="FOLDER", help="A broker's data folder, or the folder of one partition."
    ),
]


@app.command()
def check(folder: Folder, as_json: Json = False) -> None:
    """Read every batch of every log and report what is damaged, and where.

    Also works while a broker is running. Exit status 1 if anything is damaged.
    """
    reports = []
    with _failures():
        folders = log_folders(folder)
        with ProgressBar("checking", len(folders), enabled=not as_json) as bar:
            for number, each in enumerate(folders):
                bar.update(number)
                reports.append(check_log(each))
    damage = [found for report in reports for found in report.damage]
    if as_json:
        show_json({"logs": [_log_as_json(report) for report in reports], "damaged": bool(damage)})
    else:
        _show_reports(reports)
        for found in damage:
            _show_damage(found)
        if not damage:
            show(f"{len(reports)} logs, no damage", "green")
    if damage:
        raise typer.Exit(1)


@app.command()
def dump(
    path: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER|FILE", help="A data folder, a partition's folder, or a .log file."
        ),
    ],
    offset: Annotated[int, typer.Option(metavar="N", help="Start at this offset.")] = 0,
    max_batches: Annotated[
        int | None, typer.Option("--max", min=1, metavar="N", help="Stop after N batches.")
    ] = None,
    no_records: Annotated[
        bool, typer.Option("--no-records", help="Show batches only, without their records.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print batches and records as they are on disk; with --json, one JSON object per batch.

    Exit status 1 if anything is damaged; the rest of a damaged file is not shown.
    """
    shown = 0
    is_damaged = False
    with _failures():
        for file in _files_of(path):
            if not as_json:
                show(file, "bold")
            for step in _steps(file):
                if isinstance(step, Damage):
                    is_damaged = True
                    if as_json:
                        show_json(_damage_as_json(step))
                    else:
                        _show_damage(step)
                    break
                position, header, batch = step
                if header.last_offset < offset:
                    continue
                if shown == max_batches:
                    raise typer.Exit(int(is_damaged))
                shown += 1
                records = None if no_records else _decoded(header, batch)
                if as_json:
                    show_json(_batch_as_json(file, position, header, records))
                else:
                    _show_batch(position, header, records)
    if is_damaged:
        raise typer.Exit(1)


class _failures:
    """Turns what the disk refuses into a failure of the command."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        if isinstance(problem, StorageError):
            raise Failure(
                str(problem), "give a broker's data folder, or the folder of a partition in it"
            ) from problem


def _files_of(path: str) -> list[str]:
    if os.path.isfile(path):
        return [path]
    return [file for folder in log_folders(path) for file in segment_files(folder)]


def _steps(file: str) -> Iterator[tuple[int, BatchHeader, memoryview] | Damage]:
    try:
        yield from walk(file)
    except FileNotFoundError:
        # Retention or compaction has just taken it away.
        return


def _decoded(header: BatchHeader, batch: memoryview) -> list[Record] | str:
    """Return the records of a batch, or why they cannot be read."""
    try:
        return list(records_of(batch))
    except BatchError as error:
        return str(error)


def _show_reports(reports: list[LogReport]) -> None:
    rows = []
    for report in reports:
        segments = report.segments
        offsets = [segment for segment in segments if segment.batches]
        first = str(offsets[0].first_offset) if offsets else "-"
        rows.append(
            (
                report.name,
                len(segments),
                sum(segment.batches for segment in segments),
                sum(segment.records for segment in segments),
                first,
                str(offsets[-1].end_offset) if offsets else "-",
                sum(segment.size for segment in segments),
                len(report.damage) or "-",
            )
        )
    columns = ("LOG", "SEGMENTS", "BATCHES", "RECORDS", "FIRST", "END", "BYTES", "DAMAGE")
    show_table(columns, rows)


def _show_damage(found: Damage) -> None:
    ending = " (a broker rebuilds it when needed)" if found.heals else ""
    text = f"damaged: {found.path} at position {found.position}: {found.reason}{ending}"
    show(text, "yellow" if found.heals else "red")


def _show_batch(position: int, header: BatchHeader, records: list[Record] | str | None) -> None:
    what = "transactional" if header.is_transactional else ""
    if header.is_control:
        marker = _marker_in(records)
        what = "control" if marker is None else "commit marker" if marker else "abort marker"
    producer = ""
    if header.producer_id >= 0:
        producer = f"producer {header.producer_id}/{header.producer_epoch}"
        producer += f" sequence {header.base_sequence}"
    words = (
        f"  {header.base_offset}..{header.last_offset}",
        f"position {position}",
        f"{header.size} bytes",
        f"{header.count} records",
        Codec.of(header.codec).name.lower(),
        f"epoch {header.leader_epoch}",
        producer,
        what,
    )
    show("  ".join(word for word in words if word), "cyan")
    if isinstance(records, str):
        show(f"    its records could not be read: {records}", "red")
        return
    for record in records or ():
        headers = "".join(f"  {name}={value!r}" for name, value in record.headers)
        show(
            f"    {record.offset}  {_time(record.timestamp)}"
            f"  {_text(record.key)}  {_text(record.value)}{headers}"
        )


def _time(timestamp_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z" if timestamp_ms >= 0 else "-"


def _text(content: bytes | None) -> str:
    if content is None:
        return "null"
    try:
        return repr(content.decode())
    except UnicodeDecodeError:
        return repr(content)


def _log_as_json(report: LogReport) -> dict[str, Any]:
    return {
        "log": report.name,
        "folder": report.folder,
        "segments": [_segment_as_json(segment) for segment in report.segments],
    }


def _segment_as_json(segment: SegmentReport) -> dict[str, Any]:
    return {
        "file": segment.path,
        "base_offset": segment.base,
        "bytes": segment.size,
        "batches": segment.batches,
        "records": segment.records,
        "first_offset": segment.first_offset,
        "end_offset": segment.end_offset,
        "largest_timestamp": segment.largest_timestamp,
        "damage": [_damage_as_json(found) for found in segment.damage],
    }


def _damage_as_json(found: Damage) -> dict[str, Any]:
    return {
        "file": found.path,
        "position": found.position,
        "damage": found.reason,
        "heals": found.heals,
    }


def _batch_as_json(
    file: str, position: int, header: BatchHeader, records: list[Record] | str | None
) -> dict[str, Any]:
    fields = {
        "file": file,
        "position": position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "bytes": header.size,
        "count": header.count,
        "codec": Codec.of(header.codec).name.lower(),
        "leader_epoch": header.leader_epoch,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
    }
    if header.is_control and (commits := _marker_in(records)) is not None:
        fields["marker"] = "commit" if commits else "abort"
    if isinstance(records, str):
        fields["unreadable"] = records
    elif records is not None:
        fields["records"] = [_record_as_json(record) for record in records]
    return fields


def _marker_in(records: list[Record] | str | None) -> bool | None:
    """Return whether a control batch commits a transaction; None if it does not end any, or if its
    records are not read."""
    if isinstance(records, str) or not records:
        return None
    try:
        marker = end_marker_of(records[0])
    except BatchError:
        return None
    return None if marker is None else marker.commits


def _record_as_json(record: Record) -> dict[str, Any]:
    fields: dict[str, Any] = {"offset": record.offset, "timestamp": record.timestamp}
    _put(fields, "key", record.key)
    _put(fields, "value", record.value)
    fields["headers"] = [
        [name, None if value is None else _json_text(value)] for name, value in record.headers
    ]
    return fields


def _put(fields: dict[str, Any], name: str, content: bytes | None) -> None:
    text = None if content is None else _json_text(content)
    if isinstance(text, dict):
        fields[f"{name}_base64"] = text["base64"]
    else:
        fields[name] = text


def _json_text(content: bytes) -> str | dict[str, str]:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
