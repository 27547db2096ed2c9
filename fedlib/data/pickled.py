"""Pickles of arrays, read without trust: as lists of instructions, of which those are
followed that make containers, strings, numbers and numpy arrays.
"""

from __future__ import annotations

import math
import pickle
import re
from mmap import ACCESS_READ, mmap
from typing import NamedTuple

import numpy as np

from ..core.ranges import short
from .archive import DataError

READS = 1_500_000  # of CIFAR-100, 50,000 names and 100,000 labels: 600,000
LARGEST = 2**36  # numbers of one array
NESTED = 20  # lists in lists
# what a pickle of arrays is made of: values, containers, the memo, and what describes
# an array
CODES = set(
    pickle.PROTO + pickle.FRAME + pickle.STOP + pickle.MARK + pickle.POP
    + pickle.POP_MARK + pickle.DUP + pickle.NONE + pickle.NEWTRUE + pickle.NEWFALSE
    + pickle.INT + pickle.BININT + pickle.BININT1 + pickle.BININT2 + pickle.LONG
    + pickle.LONG1 + pickle.FLOAT + pickle.BINFLOAT + pickle.STRING
    + pickle.BINSTRING + pickle.SHORT_BINSTRING + pickle.BINBYTES
    + pickle.SHORT_BINBYTES + pickle.BINBYTES8 + pickle.UNICODE + pickle.BINUNICODE
    + pickle.SHORT_BINUNICODE + pickle.BINUNICODE8 + pickle.EMPTY_LIST + pickle.LIST
    + pickle.APPEND + pickle.APPENDS + pickle.EMPTY_TUPLE + pickle.TUPLE
    + pickle.TUPLE1 + pickle.TUPLE2 + pickle.TUPLE3 + pickle.EMPTY_DICT + pickle.DICT
    + pickle.SETITEM + pickle.SETITEMS + pickle.GET + pickle.BINGET
    + pickle.LONG_BINGET + pickle.PUT + pickle.BINPUT + pickle.LONG_BINPUT
    + pickle.MEMOIZE + pickle.GLOBAL + pickle.STACK_GLOBAL + pickle.REDUCE
    + pickle.BUILD
)  # fmt: skip
MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")
VALUES = (type(None), bool, int, float, str, bytes)


class Name(NamedTuple):
    """Stands for a function or a class that a pickle names: nothing of it is called."""

    module: str
    name: str


class Kind:
    """Stands for a dtype, of numbers, texts or objects."""

    def __init__(self, code, align=False, copy=True):
        code = code.decode("ascii") if isinstance(code, bytes) else code
        if not re.fullmatch(r"[biufcSUO][1-9]\d{0,4}", code):
            raise DataError(f"asks for arrays of type {code[:20]!r}: refused")
        self.dtype = np.dtype(code)

    def set(self, state):
        order = state[1].decode("ascii") if isinstance(state[1], bytes) else state[1]
        if any(part is not None for part in (*state[2:5], *state[8:])):
            raise DataError("asks for arrays with fields: refused")
        # a dtype of numpy's own would change for everybody
        self.dtype = self.dtype.newbyteorder(order)


class Array:
    """Stands for an array, until it has its content."""

    def __init__(self, name, shape, code):
        self.state = None

    def set(self, state):
        self.state = state


class _Arrays(pickle._Unpickler):
    """Reads containers, strings, numbers and numpy arrays; every other name that the
    file asks for is refused.

    It is Python's own in Python: the one in C takes 2 GB for a memo with the number
    2^27, overflows its stack where deep tuples are hashed, and lets a file change the
    attributes of all that it can name.
    """

    def __init__(self, file, size, encoding):
        super().__init__(file, encoding=encoding)
        self.room = 4 * size + 1024

    def find_class(self, module, name):
        if (module, name) not in self.named:
            raise DataError(
                f"asks for {module}.{name}, which a file of arrays has no use "
                "for: refused"
            )
        return Name(module, name)

    def load_reduce(self):
        arguments, name = self.stack.pop(), self.stack.pop()
        if type(name) is not Name or type(arguments) is not tuple:
            raise DataError(f"calls a {type(name).__name__}: refused")
        self.append(self.named[name](self, *arguments))

    def load_build(self):
        state = self.stack.pop()
        if type(self.stack[-1]) not in (Kind, Array) or type(state) is not tuple:
            raise DataError(
                f"sets the state of a {type(self.stack[-1]).__name__}: refused"
            )
        self.stack[-1].set(state)

    def load_setitem(self):
        value, key = self.stack.pop(), self.stack.pop()
        self._fill([key, value])

    def load_setitems(self):
        self._fill(self.pop_mark())

    def load_dict(self):
        items = self.pop_mark()
        self.append({})
        self._fill(items)

    def load_frame(self):
        self.read(8)  # what it says of the length is of no use

    def _fill(self, items):
        """Into the dict on the stack. A key that is a tuple can take for ever to be
        hashed, and so can large numbers that were chosen to that end.
        """
        for key in items[::2]:
            small = type(key) is int and key.bit_length() <= 64
            if not small and not isinstance(key, (str, bytes)):
                raise DataError(f"has the key {type(key).__name__}: refused")
        if type(self.stack[-1]) is not dict:
            raise DataError(f"fills a {type(self.stack[-1]).__name__}: refused")
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def _made(self, size):
        self.room -= size
        if self.room < 0:
            raise DataError("holds arrays that are larger than the file: refused")

    def _latin1(self, text, encoding):
        """Bytes, in the way Python 3 writes them into pickles of the old protocols."""
        if encoding != "latin1":
            raise DataError(f"encodes bytes as {encoding!r}: refused")
        self._made(len(text))
        return text.encode("latin1")

    def _scalar(self, kind, content):
        return self._numbers(kind, (), content)[()]

    def _numbers(self, kind, shape, content):
        if isinstance(content, str):
            content = content.encode("latin1")
        if kind.dtype.hasobject or type(content) is not bytes:
            raise DataError(
                f"describes an array by a {type(content).__name__}: refused"
            )
        need = math.prod(shape) * kind.dtype.itemsize
        if need != len(content) or min(shape, default=0) < 0:
            raise DataError(
                f"holds {len(content):,} bytes for an array of shape {short(shape)}"
            )
        if kind.dtype.kind == "b" and content.strip(b"\0\1"):
            raise DataError("holds a bool that is neither 0 nor 1: refused")
        self._made(need)
        return np.frombuffer(content, kind.dtype).copy().reshape(shape)

    def _array(self, state, inner):
        """The array that a state describes; inner(value) for each object in it."""
        _, shape, kind, fortran, content = state
        whole = type(shape) is tuple and all(type(n) is int for n in shape)
        if type(kind) is not Kind or not whole:
            raise DataError("describes no array: refused")
        if math.prod(n or 1 for n in shape) > LARGEST:
            raise DataError(f"describes an array of shape {short(shape)}: too large")
        if type(content) is not list:
            flat = self._numbers(kind, (math.prod(shape),), content)
        elif kind.dtype.hasobject:
            flat = np.empty(len(content), object)
            for i, v in enumerate(content):
                flat[i] = inner(v)
        else:
            raise DataError("describes an array of numbers by a list: refused")
        return flat.reshape(shape, order="F" if fortran else "C")

    def plain(self, value, seen, depth=0):
        """The value with arrays in place of what stands for them. No list, tuple or
        dict may be in it twice: it could be without end, or larger than any memory.
        """
        if type(value) in VALUES or isinstance(value, np.generic):
            return value
        if depth > NESTED or (id(value) in seen and value != ()):
            raise DataError("holds a part that is nested too deep, or twice: refused")
        seen.add(id(value))
        inner = lambda v: self.plain(v, seen, depth + 1)
        if type(value) in (list, tuple):
            return type(value)(map(inner, value))
        if type(value) is dict:
            return {k: inner(v) for k, v in value.items()}
        if type(value) is Array and value.state:
            return self._array(value.state, inner)
        raise DataError(f"holds a {type(value).__name__} by itself: refused")


_Arrays.named = {
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): lambda self, *a: Kind(*a),
    ("_codecs", "encode"): _Arrays._latin1,
    ("__builtin__", "bytes"): lambda self: b"",  # how Python 3 writes no bytes
    **{(m, "_reconstruct"): lambda self, *a: Array(*a) for m in MULTIARRAY},
    **{(m, "scalar"): _Arrays._scalar for m in MULTIARRAY},
}


def _refused(unpickler):
    raise DataError("does more than to describe arrays: refused")


_Arrays.dispatch = {
    code: getattr(_Arrays, f.__name__) if code in CODES else _refused
    for code, f in pickle._Unpickler.dispatch.items()
}


class Reads:
    """A file that is read a limited number of times."""

    def __init__(self, file, most):
        self.file, self.left = file, most

    def read(self, n):
        self.left -= 1
        if self.left < 0:
            raise DataError("has too many parts: refused")
        return self.file.read(n)

    def readline(self):
        line = self.file.readline()
        if not line.endswith(b"\n"):
            raise EOFError("a line has no end")
        return line


def read_arrays(path, encoding: str = "bytes"):
    """The content of a pickle that holds nothing but plain containers, strings, numbers
    and numpy arrays, of which none is larger than the file.
    """
    try:
        # a mapped file is not read beyond its end, whatever length its content claims
        with (
            open(path, "rb") as file,
            mmap(file.fileno(), 0, access=ACCESS_READ) as data,
        ):
            reader = _Arrays(Reads(data, READS), len(data), encoding)
            return reader.plain(reader.load(), set())
    except DataError as error:
        raise DataError(f"{path} {error}") from None
    except FileNotFoundError:
        raise DataError(f"{path} does not exist") from None
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise DataError(
            f"{path} is damaged or cut short ({type(error).__name__}: {error}); "
            "get it again"
        ) from error
