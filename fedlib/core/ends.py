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
from importlib.metadata import PackageNotFoundError, metadata

from .errors import ClientError, DataWarning

DONE, FAILED, MISTAKE, DEFECT, STOPPED = 0, 1, 2, 70, 130
DEBUG = "--debug"
LONGEST = 600  # characters of a line

# what a wrong name leads to, and not a bad disk
NAMES = (
    *(FileNotFoundError, FileExistsError, PermissionError),
    *(IsADirectoryError, NotADirectoryError),
)


def program(name, main, takes_words=True):
    """Be the program `name`: main(words of the command line), or main() of one that
    takes none -> exit status or None.
    """
    debug, words = without_debug(sys.argv[1:])
    warn_as(name)
    if takes_words:
        sys.exit(ended(name, lambda: main(words), debug))
    sys.exit(ended(name, lambda: refuse(name, words) or main(), debug))


def warn_as(name):
    """Show a DataWarning as a line that begins with `name`: a program has no line of
    the caller to point at."""
    usual = warnings.showwarning

    def shown(message, category, *where, **more):
        if not issubclass(category, DataWarning):
            return usual(message, category, *where, **more)
        with suppress(OSError):  # it may be closed
            print(f"{name}: warning: {one_line(str(message))}", file=sys.stderr)

    warnings.showwarning = shown


def refuse(name, words):
    """ValueError where a program that takes no words is given some."""
    if words:
        raise ValueError(f"{words[0]!r}: it takes no words; write `{name}` alone")


def without_debug(words):
    """(Is --debug among the words?, the other words)."""
    return DEBUG in words, [w for w in words if w != DEBUG]


def ended(name, act, debug=False):
    """Call act -> the exit status, its own or 0; what it raises becomes a line that
    begins with `name`. SystemExit passes. debug: everything does.
    """
    try:
        status = act() or DONE
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except BrokenPipeError:  # as in `... | head`
        return FAILED
    except (KeyboardInterrupt, Exception) as e:
        if debug:
            raise
        status, line = told(e)
        with suppress(OSError):  # it may be closed
            print(f"{name}: {one_line(line)}", file=sys.stderr)
        return status
    finally:
        drop_unwritable()


def told(e):
    """(exit status, what to say) of an exception."""
    if isinstance(e, KeyboardInterrupt):
        return STOPPED, str(e) or "stopped"
    if lacks_memory(e):
        why = str(e).rpartition("] ")[2] or "no more to be had"
        return MISTAKE, (
            f"too little memory ({why:.300}); take smaller data, a smaller network or "
            "fewer clients at once"
        )
    if isinstance(e, OSError):
        at = f"{e.filename}: " if e.filename is not None else ""
        return MISTAKE if isinstance(e, NAMES) else FAILED, f"{at}{e.strerror or e}"
    if isinstance(e, (ValueError, ImportError, ClientError)):
        return MISTAKE, str(e)
    return DEFECT, (
        f"this is a defect of fedlib, not of what you typed ({type(e).__name__}: "
        f"{e!s:.200}); {DEBUG} shows where: please report it with that{address()}"
    )


def lacks_memory(e):
    """Whether an exception is about memory; torch's own class is a RuntimeError."""
    return isinstance(e, MemoryError) or (
        isinstance(e, RuntimeError) and "llocate" in str(e)
    )


def address():
    """ " at ADDRESS" of the project, where it has one."""
    try:
        urls = metadata("fedlib").get_all("Project-URL") or ()
    except PackageNotFoundError:
        return ""
    return next((f" at {u.partition(', ')[2]}" for u in urls if "Repo" in u), "")


def one_line(text):
    """A text in one line that a terminal shows as it is; of a long one both ends."""
    text = " ".join(text.split())
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} [...] {text[-LONGEST // 2 :]}"
    return text


def drop_unwritable():
    """What stdout cannot take goes nowhere; else the end of the process would try it
    again, and complain.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
