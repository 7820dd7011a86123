"""Exceptions: of calls that could not be made at all. What became of a block is
an Outcome, never an exception.
"""

import builtins


class Error(Exception):
    """Of all that this package raises, besides TypeError, ValueError,
    BufferError and the like for wrong arguments.
    """


class Unavailable(Error, ConnectionError):
    """Nobody can be asked: no node, no catalog, or a forked process."""


class DeadlineExceeded(Error, TimeoutError):
    """The call's deadline passed first."""


class Denied(Error, PermissionError):
    """The node or the catalog does not serve this caller."""


class NotFound(Error, LookupError):
    """There is no such namespace."""


class Exhausted(Error):
    """A bound was reached; the message says which."""


class Refused(Error):
    """Another cluster, another protocol, or a namespace that has no version of
    this contract: the message names the first field that differs."""


class Cancelled(Error):
    """The Client was closed."""


class InvalidArgument(Error, ValueError):
    """An argument is out of its bounds; the message says which."""


#: By the number of the SDK's status code.
_BY_CODE = {
    1: Cancelled,
    3: InvalidArgument,
    4: DeadlineExceeded,
    5: NotFound,
    7: Denied,
    8: Exhausted,
    9: Refused,
    14: Unavailable,
    16: Denied,
}


def fail(code: int, message: str):
    """Raises what a status of the SDK is; called by _core."""
    raise _BY_CODE.get(code, Error)(message)


def fail_with(name: str, message: str):
    """Raises a built-in exception; called by _core."""
    raise getattr(builtins, name)(message)
