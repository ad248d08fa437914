"""What holds for all tests: an example may take as long as a busy machine lets it, and Ctrl-C is heard."""

import signal
import threading

from hypothesis import settings

if (
    threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):
    # A shell lets what it starts in the background ignore Ctrl-C, and that is inherited by what tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("unhurried", parent=settings(), deadline=None)
settings.load_profile("unhurried")
