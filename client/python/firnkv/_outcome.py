"""What became of one block of a batch."""

import enum


class Outcome(enum.IntEnum):
    """One for each block of a call; the numbers are the wire's. A miss is an
    outcome, never an exception.
    """

    #: The bytes are there, and verified. As an answer of remove: it was known.
    HIT = 1
    #: Nobody has it. Recompute.
    MISS = 2
    #: Older than the retention of its namespace. Recompute.
    EXPIRED = 3
    #: A writer has reserved it.
    BEING_WRITTEN = 4
    #: A copy failed its checksum: isolated, never served again.
    CORRUPT = 5
    #: The caller may not see this namespace.
    DENIED = 6
    #: Known, but who has it cannot be reached; or nobody can be asked.
    UNAVAILABLE = 7
    #: The deadline passed first.
    TIMED_OUT = 8
    #: No room or no turn now; the result says retry_after.
    CONGESTED = 9
    #: Not tried: the leading run had ended before it.
    SKIPPED = 10
    #: The Client was closed.
    CANCELLED = 11
    #: Memory and block differ in length.
    WRONG_SIZE = 12
    #: Internal to the SDK.
    STALE_LOCATION = 13
    #: Written: it can be read where the caller asked to wait for.
    STORED = 14
    #: A copy was there before; nothing was copied.
    ALREADY_THERE = 15
    #: The tenant is over its quota.
    OVER_QUOTA = 16
    #: The write took longer than its reservation lived. Write again.
    RESERVATION_OVER = 17
    #: The namespace was cleared meanwhile.
    CLEARED = 18

    @property
    def good(self) -> bool:
        """Whether a reader has the bytes, or a writer's block can be read."""
        return self in _GOOD


_GOOD = frozenset((Outcome.HIT, Outcome.STORED, Outcome.ALREADY_THERE))

#: By number; what _core picks from.
MEMBERS = (None,) + tuple(Outcome)
