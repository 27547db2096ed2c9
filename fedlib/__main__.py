"""python -m fedlib, and the command fedlib: see fedlib.cli.main."""

import signal


def main():
    """Be the program."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:
        # imports take seconds: until they are done, Ctrl-C ends without a traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .cli.main import entry

    signal.signal(signal.SIGINT, usual)
    entry()


if __name__ == "__main__":
    main()
