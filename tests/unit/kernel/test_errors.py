from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from queueyard.kernel import errors
from queueyard.kernel.errors import QueueyardError, StorageFailed, UsageFault, explaining

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, QueueyardError)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_is_one_family_with_message_hint_and_exit_code(kind: type[QueueyardError]) -> None:
    fault = kind("what is wrong", hint="what to type")

    assert (str(fault), fault.hint) == ("what is wrong", "what to type")
    assert fault.exit_code == (2 if kind is UsageFault else 1)
    assert kind("no hint").hint is None


def test_the_tree_in_the_docstring_is_the_real_one() -> None:
    assert errors.__doc__ is not None
    drawn = {
        word: int(line.partition("exit ")[2].split()[0])
        for line in errors.__doc__.splitlines()
        if "exit " in line and (word := line.strip("├└─ ").split()[0])
    }

    assert drawn == {kind.__name__: kind.exit_code for kind in KINDS}


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.ENOSPC, "Free some space on that disk, then run the same command again."),
        (errno.EDQUOT, "Your disk quota is used up: free some space, then run the same command again."),
        (errno.EROFS, "The file system is read-only: use another folder, or mount it writable."),
        (errno.EACCES, "Check who owns it: ls -ld /a/{b}"),
        (errno.EPERM, "Check who owns it: ls -ld /a/{b}"),
        (errno.ENOENT, "Check that the folder exists: ls -ld /a"),
        (errno.ENOTDIR, "A file stands where a folder should be: ls -ld /a"),
        (errno.EISDIR, "A folder stands where a file should be: ls -ld /a/{b}"),
        (errno.EIO, "The disk reports an error: look at the system log before you write there again."),
        (errno.EMFILE, "Too many open files: raise the limit with ulimit -n."),
        (errno.EXDEV, None),
    ],
)
def test_what_the_disk_refused_is_explained_with_the_next_command(number: int, hint: str | None) -> None:
    with pytest.raises(StorageFailed) as caught, explaining("write", Path("/a/{b}")):
        raise OSError(number, "whatever", "/some/temporary/name")

    assert str(caught.value) == f"cannot write /a/{{b}}: {os.strerror(number)}"
    assert caught.value.hint == hint
    assert isinstance(caught.value.__cause__, OSError)


def test_an_error_without_a_number_keeps_its_own_words() -> None:
    with pytest.raises(StorageFailed, match="cannot read x: the tape is torn"), explaining("read", "x"):
        raise OSError("the tape is torn")


def test_a_file_without_a_folder_is_in_this_one() -> None:
    with pytest.raises(StorageFailed) as caught, explaining("read", "x"):
        raise FileNotFoundError(errno.ENOENT, "")

    assert caught.value.hint == "Check that the folder exists: ls -ld ."


def test_any_other_error_is_a_bug_and_passes_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError), explaining("read", "x"):
        raise ZeroDivisionError
