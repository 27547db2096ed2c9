"""A function as a program: its parameters are the arguments, its end the exit status.

0    done
1    it failed on the way: the disk, the network, the reader of what it prints
2    it cannot do what was asked; the line names the value and the remedy
70   a defect of this package; the line says so
130  Ctrl-C; the line says how to go on

Where that is not 0, one line on stderr says why. With --debug, anywhere among the
words, the exception is raised as it is.
"""

import argparse
import inspect
import os
import re
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Literal, get_args, get_origin

from ..core.errors import ClientError, refuse_if

FAILED, MISTAKE, DEFECT, STOPPED = 1, 2, 70, 130
DEBUG = "--debug"
# of files what a wrong name leads to, and not a bad disk
MISTAKES = FileNotFoundError, FileExistsError, PermissionError, NotADirectoryError
MISTAKES = *MISTAKES, IsADirectoryError, ValueError, ImportError, ClientError


# ---------------------------------------------------------------- arguments
def parser_of(function, name=""):
    """The parameters of a function as arguments of a parser.

    Those after a * are options; a bool is a flag, a tuple may be repeated. Annotations
    are types (of Literal: the choices). Of the docstring the first paragraph is what
    the program is for, and lines "name: ..." are help.
    """
    what, _, told = inspect.getdoc(function).partition("\n\n")
    told = dict(re.findall(r"(?m)^(\w+): +(.+)$", told))
    parser = argparse.ArgumentParser(f"{called()} {name}".rstrip(), description=what)
    parser.error = lambda e: refuse_if(True, f"{e} (`{parser.prog} --help` explains)")
    for name, p in inspect.signature(function, eval_str=True).parameters.items():
        usual = "" if p.default in (None, p.empty, ()) else f"{p.default} unless given"
        how, kind, flag = {"help": told.get(name, usual)}, p.annotation, name
        if get_origin(kind) is Literal:
            how["choices"] = get_args(kind)
        elif kind in (int, float, Path):
            how["type"] = kind
        if p.kind is p.VAR_POSITIONAL:
            how["nargs"] = "*"
        elif p.kind is p.KEYWORD_ONLY:
            flag, how["required"] = f"--{name}".replace("_", "-"), p.default is p.empty
            if kind in (bool, tuple):
                how["action"] = "store_true" if kind is bool else "append"
        elif p.default is not p.empty:
            how["nargs"] = "?"
        parser.add_argument(flag, default=argparse.SUPPRESS, **how)
    return parser


def called():
    """How this program was called."""
    spec = sys.modules["__main__"].__spec__
    name = spec.name.removesuffix(".__main__") if spec else Path(sys.argv[0]).stem
    return f"python -m {name}" if spec else name


def obey(function, words, name=""):
    """Call a function with the words of a command line, behind those of a name."""
    given = vars(parser_of(function, name).parse_intermixed_args(words))
    bound = inspect.BoundArguments(inspect.signature(function), given)
    return function(*bound.args, **bound.kwargs)


def program(main):
    """Be a program whose arguments are a function's parameters."""
    end(partial(obey, main))


# ---------------------------------------------------------------- how it ends
def end(run):
    """Run the words of the command line and end the process; a warning is one line."""
    line = lambda message, *_, **__: f"{called()}: warning: {one_line(message)}\n"
    warnings.formatwarning = line
    status = exit_status(run, sys.argv[1:])
    try:
        print(end="", flush=True)
    except OSError:  # else Python tries again at its end, and complains
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


def exit_status(run, words):
    """Call run(words but for --debug) -> the exit status; what it raises becomes a line
    that begins with the program's name. SystemExit passes, with --debug everything.
    """
    try:
        status = run([w for w in words if w != DEBUG]) or 0
        print(end="", flush=True)
        return status
    except (KeyboardInterrupt, Exception) as e:
        if DEBUG in words:
            raise
        status, why = explained(e)
        print(f"{called()}: {one_line(why)}", file=sys.stderr)
        return status


def explained(e):
    """(exit status, what to say) of an exception."""
    why = str(e)
    if isinstance(e, KeyboardInterrupt):
        return STOPPED, why or "stopped; with --folder the same command goes on"
    if isinstance(e, MemoryError) or "can't allocate memory" in why:
        return MISTAKE, f"too little memory; take smaller data or models ({why:.300})"
    if isinstance(e, (*MISTAKES, OSError)):
        return MISTAKE if isinstance(e, MISTAKES) else FAILED, why
    what = f"a defect of fedlib, not of what you typed: {type(e).__name__}: {why:.200}"
    return DEFECT, f"{what}; please report it with what {DEBUG} shows"


def one_line(text):
    """A text in one line that a terminal shows as it is."""
    text = " ".join(str(text).split())
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
