"""Run a command and print what it took as JSON: `python measured.py SECONDS COMMAND ...`.

A process of its own, small, because Linux counts the memory of the process that starts a program as the
program's own peak. A command that takes longer than SECONDS is stopped. What it prints is in the record.
"seconds" are of the clock, "processor" of all its threads.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time


def main() -> None:
    limit, command = float(sys.argv[1]), sys.argv[2:]
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
            "processor": usage.ru_utime + usage.ru_stime,
            "peak_mb": usage.ru_maxrss / 1024,
            "exit": os.waitstatus_to_exitcode(status),
            "printed": printed.read().decode(errors="replace"),
        }
    print(json.dumps(taken))


if __name__ == "__main__":
    main()
