"""Run a command and write what it took: `python measured.py RECORD.json SECONDS COMMAND ...`.

A process of its own, small, because Linux counts the memory of the process that starts a program as the
program's own peak. A command that takes longer than SECONDS is stopped. What it prints is in the record.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time


def main() -> None:
    record, limit, command = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
    with tempfile.TemporaryFile() as printed:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=printed)
        stop = threading.Timer(limit, process.kill)
        stop.start()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        stop.cancel()
        printed.seek(0)
        taken = {
            "seconds": seconds,
            "peak_mb": usage.ru_maxrss / 1024,
            "exit": os.waitstatus_to_exitcode(status),
            "printed": printed.read().decode(errors="replace"),
        }
    with open(record, "w", encoding="utf-8") as file:
        json.dump(taken, file)


if __name__ == "__main__":
    main()
