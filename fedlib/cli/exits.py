"""How a program ends: its exit status, and one line on stderr where that is not 0.

0    done
1    it failed on the way: the disk, the network, the reader of what it prints
2    it cannot do what was asked; the line names the value and the remedy
70   a defect of this package; the line says so
130  Ctrl-C; the line says how to go on

With --debug, anywhere among the words, the exception is raised as it is.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import suppress

from ..core.errors import ClientError, DataWarning

DONE, FAILED, MISTAKE, DEFECT, STOPPED = 0, 1, 2, 70, 130
DEBUG = "--debug"
# what a wrong name leads to, and not a bad disk
NAMES = FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError
NAMES += (NotADirectoryError,)


def program(name, main, takes_words=True):
    """Be the program `name`: main(words of the command line), or main() of one that
    takes none."""
    words = sys.argv[1:]

    def act():
        if takes_words:
            return main([w for w in words if w != DEBUG])
        if {*words} - {DEBUG}:
            raise ValueError(f"{words[0]!r}: it takes no words; write `{name}` alone")
        return main()

    name_warnings(name)
    sys.exit(status_of(name, act, DEBUG in words))


def name_warnings(name):
    """Show a DataWarning as a line that begins with `name`: a program has no line of
    the caller to point at."""
    usual = warnings.showwarning

    def shown(message, category, *where, **more):
        if not issubclass(category, DataWarning):
            return usual(message, category, *where, **more)
        say(f"{name}: warning: {message}")

    warnings.showwarning = shown


def status_of(name, act, debug=False):
    """Call act -> the exit status, its own or 0; what it raises becomes a line that
    begins with `name`. debug: it is raised."""
    try:
        status = act() or DONE
        print(end="", flush=True)
        return status
    except BrokenPipeError:  # as in `... | head`; what is left goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (KeyboardInterrupt, Exception) as e:
        if debug:
            raise
        status, line = explained(e)
        say(f"{name}: {line}")
        return status


def explained(e):
    """(exit status, what to say) of an exception."""
    if isinstance(e, KeyboardInterrupt):
        return STOPPED, str(e) or "stopped"
    if lacks_memory(e):
        return MISTAKE, (
            f"too little memory ({e!s:.300}); take smaller data, a smaller network or "
            "fewer clients at once"
        )
    if isinstance(e, OSError):
        at = f"{e.filename}: " if e.filename is not None else ""
        return MISTAKE if isinstance(e, NAMES) else FAILED, f"{at}{e.strerror or e}"
    if isinstance(e, (ValueError, ImportError, ClientError)):
        return MISTAKE, str(e)
    return DEFECT, (
        f"this is a defect of fedlib, not of what you typed ({type(e).__name__}: "
        f"{e!s:.200}); {DEBUG} shows where: please report it with that"
    )


def lacks_memory(e):
    """Whether an exception is about memory; torch's own class is a RuntimeError."""
    torch_has_none = isinstance(e, RuntimeError) and "llocate" in str(e)
    return torch_has_none or isinstance(e, MemoryError)


def say(line):
    """Print one line that a terminal shows as it is on stderr, if that is open."""
    line = " ".join(line.split())
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
    with suppress(OSError):
        print(line, file=sys.stderr)
