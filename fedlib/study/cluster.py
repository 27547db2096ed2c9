"""A Dask cluster for studies: how to start one, and that its workers compute our
numbers.

On every machine `pip install 'fedlib[cluster]'` and the same commit of this package.
Then, on one machine, the scheduler, which prints its address:

    dask scheduler --host 10.0.0.5

On every machine, in the folder of the repository, the workers:

    dask worker tcp://10.0.0.5:8786 --nthreads 1 --nworkers 8

And a study:

    python -m fedlib run fedga/synthetic --scheduler tcp://10.0.0.5:8786

Under Slurm dask-jobqueue starts the workers as jobs; under PBS it is PBSCluster. Here
are 4 jobs of 8 workers, each of one thread:

    from dask_jobqueue import SLURMCluster
    size = dict(walltime="04:00:00", cores=8, processes=8, memory="32GB")
    slurm = SLURMCluster(queue="short", **size)
    slurm.scale(jobs=4)
    study("fedga", "synthetic", executor=slurm.scheduler_address)

Finished runs end up in the caller's folder `runs`. Where the workers see that folder
too, as on a shared file system, a killed run goes on from its checkpoint at another
worker; where not, it starts anew and its files come back over the network.

Who reaches a tcp:// scheduler can run code on its workers. Keep it in a private
network, or use tls:// with the certificates in Dask's configuration.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import socket

import torch

from ..core.provenance import sources

PATIENCE = 5  # seconds for a scheduler to answer
log = logging.getLogger(__name__)


class CodeError(ValueError):
    """A worker has other code than the caller, so its numbers would not be ours."""


def connect(address, where="the address"):
    """A Dask client of the scheduler at an address, "tcp://host:port".

    where: what the user has to correct if there is no scheduler. Raises ValueError.
    """
    parts = re.fullmatch(r"(tcp|tls)://\[?([^/\]]+)\]?:(\d+)", address)
    if not parts:
        raise ValueError(
            f"scheduler {address!r}: write its address as tcp://host:port; "
            "`dask scheduler` prints it"
        )
    try:
        from distributed import Client  # here, since Dask is optional
    except ImportError as e:
        raise ValueError(
            f"scheduler {address}: Dask is not installed here; pip install "
            "'fedlib[cluster]'"
        ) from e
    try:
        listens(parts[1], parts[2], int(parts[3]))
        return Client(address, timeout=PATIENCE, set_as_default=False)
    except OSError as e:
        raise ValueError(
            f"no Dask scheduler answers at {address} within {PATIENCE} s ({e}); start "
            f"one there with `dask scheduler`, or correct {where}"
        ) from e


def listens(protocol, host, port):
    """OSError unless something is there that may be a scheduler; a client by itself
    would wait for ever.
    """
    if protocol == "tls":
        from distributed import Security  # here, since Dask is optional

        if Security().get_connection_args("client").get("ssl_context") is None:
            raise OSError(
                "Dask's configuration names no certificates, see distributed.comm.tls"
            )
    with socket.create_connection((host, port), PATIENCE) as s:
        if protocol == "tcp" and not s.recv(1):  # a scheduler speaks first
            raise OSError("what is there hangs up")


def check(client):
    """Refuse workers that run other code, before anything is submitted.

    Raises CodeError.
    """
    at, mine = client.scheduler.address, version()
    found = client.run(first, on_error="return")
    if not found:
        start = f"dask worker {at} --nthreads 1"
        log.warning("%s has no workers yet; runs begin when one comes: %s", at, start)
    for worker, theirs in sorted(found.items()):
        if isinstance(theirs, Exception):
            raise CodeError(
                f"worker {worker} of {at} cannot import this fedlib "
                f"({type(theirs).__name__}: {theirs}); install {mine} there and "
                "start it again"
            )
        if theirs != mine:
            raise CodeError(other(f"worker {worker} of {at}", theirs, mine))


def call(expected, f, *args):
    """f(*args) on a worker that may have come after the check, with one thread."""
    mine, me = first(), f"worker {os.getpid()} on {socket.gethostname()}"
    if mine != expected:
        raise CodeError(other(me, mine, expected))
    torch.set_num_threads(1)
    return f(*args)


def other(who, theirs, mine):
    """What to do about a worker that has other code."""
    return (
        f"{who} has {theirs}, the caller has {mine}: bring both to the same commit and "
        "the same torch, then start workers and notebook again"
    )


def version():
    """The code that decides numbers: a digest of fedlib's sources as they are on disk,
    and the release of torch.
    """
    release = torch.__version__.partition("+")[0]  # a build for a GPU is the same
    return f"fedlib {sources('**/*.py')[:12]}, torch {release}"


@functools.cache
def first():
    """A worker's version as it was at its first task: what it has imported stays,
    whatever becomes of the files.
    """
    return version()
