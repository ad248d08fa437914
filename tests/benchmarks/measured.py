"""Run a command and write what it took: `python measured.py RECORD.json COMMAND ...`.

A process of its own, small, because Linux counts the memory of the process that starts a program as the
program's own peak.
"""

import json
import os
import subprocess
import sys
import time


def main() -> None:
    record, command = sys.argv[1], sys.argv[2:]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    taken = {
        "seconds": time.perf_counter() - start,
        "peak_mb": usage.ru_maxrss / 1024,
        "exit": os.waitstatus_to_exitcode(status),
    }
    with open(record, "w", encoding="utf-8") as file:
        json.dump(taken, file)


if __name__ == "__main__":
    main()
