"""Results for people: the terminal's tables and the text of one failure. Pure."""

from harness.report.failure import explain
from harness.report.refreshed import refreshed, refreshed_record
from harness.report.replayed import replayed
from harness.report.searched import found, searched
from harness.report.selftest import selftest
from harness.report.tables import harness_share, least, power, summary, totals
from harness.report.timed import cliffs, gaps, padded, timed

__all__ = [
    "cliffs",
    "explain",
    "found",
    "gaps",
    "harness_share",
    "least",
    "padded",
    "power",
    "refreshed",
    "refreshed_record",
    "replayed",
    "searched",
    "selftest",
    "summary",
    "timed",
    "totals",
]
