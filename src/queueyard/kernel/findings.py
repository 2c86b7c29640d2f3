"""What a doctor finds: the same words in every system."""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it should be."""

    #: short name of the check
    check: str
    #: what was found, with file and line where there is one
    problem: str
    #: what to do about it
    advice: str
    #: whether --fix can mend it
    fixable: bool = False
    #: whether it was mended just now
    fixed: bool = False
