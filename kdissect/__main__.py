"""``kdissect`` and ``python -m kdissect``: ``kdissect.cli.main``, and Ctrl-C while it is imported.

``-m`` puts the current directory first on the module path. It is removed before anything is imported from
there, unless kdissect itself is there. ``typing`` is imported earlier: with ``python -P`` that is safe, too.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not sys.flags.safe_path and __file__.rpartition("/kdissect/")[0] != sys.path[0]:
    del sys.path[0]


def main() -> int:
    """Run the command line. Ctrl-C during the imports ends the process without a traceback of theirs."""
    import atexit
    import gc
    import signal

    atexit.register(gc.freeze)  # the end of the process frees everything: no need to search it for cycles

    interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not below nohup, for example
    if interrupts:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()  # what is imported stays
    from kdissect.cli.main import main as run

    gc.enable()
    if interrupts:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    status = run()
    exec("")  # or CPython ends by SIGINT if Ctrl-C came in code of an exec, as of a named tuple
    return status


if __name__ == "__main__":
    sys.exit(main())
