"""A function as a program: its parameters are the arguments, its end the exit status.

0    done
1    it failed on the way: the disk, the network, the reader of what it prints
2    it cannot do what was asked; the line names the value and the remedy
70   a defect of this package; the line says so
130  Ctrl-C; the line says how to go on

Where that is not 0, one line on stderr says why. With --debug, anywhere among the
words, the exception is raised as it is.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args, get_origin

from ..core.errors import ClientError

DONE, FAILED, MISTAKE, DEFECT, STOPPED = 0, 1, 2, 70, 130
DEBUG = "--debug"
# what a wrong name leads to, and not a bad disk
NAMES = FileNotFoundError, FileExistsError, PermissionError
NAMES = *NAMES, IsADirectoryError, NotADirectoryError


# ---------------------------------------------------------------- arguments
class Once(argparse.Action):
    """Store the value of an option; a second one would replace it in silence."""

    def __call__(self, parser, namespace, values, option_string=None):
        if getattr(namespace, self.dest, self.default) is not self.default:
            parser.error(f"{option_string} is given twice; give it once")
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """A parser whose mistakes are ValueErrors; what is not given is left out."""

    def __init__(self, **more):
        plain = argparse.RawDescriptionHelpFormatter
        more = {"formatter_class": plain, "argument_default": argparse.SUPPRESS} | more
        super().__init__(**more)
        self.register("action", None, Once)

    def error(self, message):
        raise ValueError(f"{message} (`{self.prog} --help` explains)")


def add_arguments(parser, *functions):
    """The parameters of functions as arguments of a parser, each name once.

    Those after a * are options; a bool is a flag, a tuple may be repeated. Annotations
    are types (of Literal: the choices); lines "name: ..." of the docstrings are help.
    """
    parameters = {}
    for function in reversed(functions):
        parameters |= inspect.signature(function, eval_str=True).parameters
    told = "\n".join(map(inspect.getdoc, functions))
    explained = dict(re.findall(r"(?m)^ *(\w+): +(.+)$", told))
    for name, p in parameters.items():
        how, kind = {"help": explained.get(name)}, p.annotation
        option, optional = p.kind is p.KEYWORD_ONLY, p.default is not p.empty
        if get_origin(kind) is Literal:
            how["choices"] = get_args(kind)
        elif kind in (int, float, Path):
            how["type"] = kind
        if option:
            how["required"] = not optional
            if kind in (bool, tuple):
                how["action"] = "store_true" if kind is bool else "append"
        elif p.kind is p.VAR_POSITIONAL:
            how["nargs"] = "*"
        elif optional:
            how |= {"nargs": "?", "default": p.default}
        flag = f"--{name.replace('_', '-')}" if option else name
        parser.add_argument(flag, **how)


def call(function, given):
    """Call a function with the arguments {name: value} that a parser has found."""
    signature = inspect.signature(function)
    if other := [name for name in given if name not in signature.parameters]:
        raise ValueError(f"--{other[0]} is not for this: leave it out, see --help")
    bound = inspect.BoundArguments(signature, given)
    return function(*bound.args, **bound.kwargs)


def summary(function):
    """What a function is for: the first paragraph of its docstring."""
    return inspect.getdoc(function).partition("\n\n")[0]


def called():
    """How this program was called."""
    spec = sys.modules["__main__"].__spec__
    name = spec.name.removesuffix(".__main__") if spec else Path(sys.argv[0]).stem
    return f"python -m {name}" if spec else name


def program(main):
    """Be the program whose arguments are the parameters of a function, and whose exit
    status is what that returns.
    """
    end(lambda words: obey(main, words))


def obey(main, words):
    """Call a function with the words of a command line."""
    parser = Parser(prog=called(), description=summary(main))
    add_arguments(parser, main)
    return call(main, vars(parser.parse_intermixed_args(words)))


# ---------------------------------------------------------------- how it ends
def end(run):
    """Run the words of the command line and end the process; a warning is a line on
    stderr, since a program has no line of the caller to point at.
    """
    line = lambda message, *_, **__: f"{called()}: warning: {one_line(message)}\n"
    warnings.formatwarning = line
    if sys.stdout is not None:  # a terminal may lack the letter of a name
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(exit_status(run, sys.argv[1:]))


def exit_status(run, words):
    """Call run(words but for --debug) -> the exit status; what it raises becomes a line
    that begins with the program's name. SystemExit passes, with --debug everything.
    """
    try:
        status = run([w for w in words if w != DEBUG]) or DONE
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except BrokenPipeError:  # as in `... | head`
        return FAILED
    except (KeyboardInterrupt, Exception) as e:
        if DEBUG in words:
            raise
        status, line = explained(e)
        with suppress(OSError):  # it may be closed
            print(f"{called()}: {one_line(line)}", file=sys.stderr)
        return status
    finally:
        drop_unwritable()


def explained(e):
    """(exit status, what to say) of an exception."""
    if isinstance(e, KeyboardInterrupt):
        where = "runs/, data/ or its --folder"
        return STOPPED, str(e) or f"stopped; the same command goes on from {where}"
    if lacks_memory(e):
        return MISTAKE, (
            "too little memory; take smaller data, a smaller network or fewer clients "
            f"at once ({e!s:.300})"
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
    of_torch = isinstance(e, RuntimeError) and "llocate" in str(e)
    return of_torch or isinstance(e, MemoryError)


def one_line(text):
    """A text in one line that a terminal shows as it is."""
    text = " ".join(str(text).split())
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


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
