"""The tests; a package, since others bring one of this name, which would hide it."""
