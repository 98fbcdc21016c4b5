"""What Spark does on clusters and in bad moments, as a table: runs the tests of each, one after the other.

    python benchmarks/spark_judged.py [WORD...]     those whose names contain one of these words

Prints a row in Markdown for each when it has ended, with its status and the time that it took; for those that
failed, pytest's output on stderr. What cannot run on this machine is skipped, and its status says why. The
exit status is 1 if any failed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCENES = {
    "executors without kdissect get its zip": "test_clusters.py::test_a_cluster",
    "Spark Connect": "test_clusters.py::test_a_spark_connect_server",
    "the Python of an archive": "test_clusters.py::test_workers_run_the_python_of_an_archive[kdissect]",
    "spark-submit with the Python of an archive": (
        "test_clusters.py::test_workers_run_the_python_of_an_archive[spark-submit]"
    ),
    "spark-submit with a virtual environment": "test_clusters.py::test_workers_run_a_virtual_environment",
    "spark-submit with the zip of kdissect": "test_walk.py::test_jobs_are_submitted",
    "two workers see different directories": (
        "test_standalone.py::test_the_output_is_another_mount_on_one_worker"
    ),
    "a worker is killed": "test_standalone.py::test_a_worker_is_killed",
    "a worker is stopped and continues": (
        "test_standalone.py::test_a_worker_is_stopped_and_continues_after_the_end"
    ),
    "the driver is killed": "test_standalone.py::test_the_driver_is_killed",
    "a stream is killed and restarted": (
        "test_stream.py::test_killed_inside_a_micro_batch_and_started_again_each_exchange_is_there_once"
    ),
    "a late file": "test_stream.py::test_a_file_that_comes_late_is_read",
    "a corrupt file": "test_dataframes.py::test_damage_is_counted_or_an_error",
    "2,000 small captures": "test_decode.py::test_two_thousand_small_captures",
    "1 GB in one connection": "test_decode.py::test_a_gigabyte_in_one_connection",
    "Delta": "test_delta.py::test_tables_in_delta",
}
"""The test of each."""
_SKIPPED = re.compile(r"^SKIPPED .*?\.py:\d+: (.*)", re.MULTILINE)


def main(words: list[str]) -> int:
    """Run the tests; return the exit status."""
    print("| | status | seconds |\n|---|---|--:|", flush=True)
    statuses = []
    for name, test in SCENES.items():
        if words and not any(word in name for word in words):
            continue
        began = time.monotonic()
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-rs",
            "-m",
            "deep or not deep",
            f"tests/spark/{test}",
        ]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        status = "passed" if done.returncode == 0 else "failed"
        if (skipped := _SKIPPED.search(done.stdout)) is not None:
            status = f"skipped: {skipped[1]}"
        statuses.append(status)
        print(f"| {name} | {status} | {time.monotonic() - began:.0f} |", flush=True)
        if status == "failed":
            print(done.stdout, file=sys.stderr)
    return int("failed" in statuses)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
