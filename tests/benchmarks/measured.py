"""Run a command and print what it took as JSON: `python measured.py SECONDS COMMAND ...`.

A process of its own, small, because Linux counts the memory of the process that starts a program as the
program's own peak. A command that takes longer than SECONDS is stopped. What it prints is in the record.
"seconds" are of the clock, "processor" of all its threads.
"own_mb" is the most that it held itself, without pages of mapped files, read every 20 ms.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time


def own_mb(pid: int) -> float:
    """Return what a process holds itself now, in MiB; 0 where it has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
    except OSError:
        return 0.0
    return float(fields.get("RssAnon", "0").split()[0]) / 1024


def main() -> None:
    limit, command = float(sys.argv[1]), sys.argv[2:]
    most = 0.0
    with tempfile.TemporaryFile() as printed:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=printed)
        stop = threading.Timer(limit, process.kill)
        stop.start()
        pid = 0
        while not pid:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            most = max(most, 0.0 if pid else own_mb(process.pid))
            time.sleep(0.0 if pid else 0.02)
        seconds = time.perf_counter() - start
        stop.cancel()
        printed.seek(0)
        taken = {
            "seconds": seconds,
            "processor": usage.ru_utime + usage.ru_stime,
            "peak_mb": usage.ru_maxrss / 1024,
            "own_mb": most,
            "exit": os.waitstatus_to_exitcode(status),
            "printed": printed.read().decode(errors="replace"),
        }
    print(json.dumps(taken))


if __name__ == "__main__":
    main()
