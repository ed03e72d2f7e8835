"""A visit's report, made of what its provisioning came to. Knows no link and no storage."""

from __future__ import annotations

from data_holder.gpu_channel import Provisioned
from shared.claims.visit import Grant, VisitTimers
from shared.wire.visit import Signed, VisitReport


def report_of(grant: Grant, done: Provisioned, next_key: Signed, *, import_s: float, next_s: float) -> VisitReport:
    """`import_s`, `next_s`: what it took to open the visit's key and to make the next one, in seconds."""
    return VisitReport(
        visit=grant.visit, epoch=grant.epoch, records=grant.records, length=grant.length, commitment=done.commitment,
        bytes_sent=done.bytes_sent, link=done.link, next_key=next_key,
        timers=VisitTimers(
            grab_gpu=done.grab_gpu, import_key=import_s, buffer_read=done.buffer_read, gpu_write=done.gpu_write,
            export_key=done.export_key + next_s,
        ),
    )  # fmt: skip
