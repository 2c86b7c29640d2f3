"""The three locks of the spec, held so that they exclude.

Creating a bookmark does not exclude: two calls at once may both succeed. So what decides is a flock beside the shared
repository. Beside it the lock file of the public tool is taken, and the lock bookmark of the spec is made as the sign
that every tool of the format can see. A sign of ours whose flock is free is stale: its maker died. A sign that is not
ours is respected: the lock is held, until the sign is gone, or, for locks that are held for moments only, until it is
old.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from queueyard.jjq.errors import ConflictedBookmark, JjFailed, LockHeld, NotInitialized
from queueyard.jjq.jj import METADATA_REVISION
from queueyard.jjq.records import METADATA, LockName, Queue
from queueyard.jjq.rules import OUR_BOOKMARKS, lock_bookmark, read_queue
from queueyard.kernel import proc
from queueyard.kernel.clock import BadTime, from_rfc3339
from queueyard.kernel.errors import LockTimeout, explaining
from queueyard.kernel.locks import FileLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from queueyard.jjq.home import Home
    from queueyard.jjq.jj import Jj
    from queueyard.kernel.clock import Clock

#: a foreign sign of a lock that is held for moments only is taken for stale after this
_FOREIGN_LIFE_S = 60.0
_LOOK_AGAIN_S = 0.1


class QueueLock:
    """One of the three; usable again after release."""

    def __init__(
        self, name: LockName, home: Home, jj: Jj, *, clock: Clock, timeout_s: float, note: Callable[[str], None]
    ) -> None:
        self.name = name
        self._jj = jj
        self._clock = clock
        self._timeout_s = timeout_s
        self._note = note
        self._flock = FileLock(home.locks / f"{name}.lock", timeout_s=timeout_s, clock=clock)
        self._public = FileLock(home.public_locks / f"{name}.lock", timeout_s=timeout_s, clock=clock)
        self._sign = home.locks / f"{name}.signed"

    @property
    def signed_by_us(self) -> bool:
        """Whether a process of ours made the lock bookmark, or was about to, and has not deleted it."""
        return self._sign.exists()

    @property
    def signer_died(self) -> bool:
        """Whether that process is gone."""
        try:
            pid, _, started = self._sign.read_text(encoding="ascii").partition(" ")
            return not proc.is_alive(proc.Identity(int(pid), started))
        except FileNotFoundError:
            return False
        except (OSError, ValueError):
            return True

    def holder(self) -> str | None:
        """Who holds it, as far as files tell; None if it seems free."""
        held = self._flock.holder() or self._public.holder()
        return str(held) if held else None

    @contextmanager
    def held(self, *, signed: bool = True, initialize: Callable[[], object] | None = None) -> Iterator[None]:
        """Hold it while the block runs. LockHeld if it is not free in time.

        Without `signed` no bookmark is made, for those who only read. NotInitialized if there is no metadata branch
        that the bookmark could point to, unless `initialize` makes one.
        """
        with ExitStack() as stack:
            for flock in (self._flock, self._public):
                self._take(stack, flock)
            if signed:
                self._make_sign(initialize)
                stack.callback(self._remove_sign)
            yield

    def respect(self, queue: Queue) -> bool:
        """Whether the queue shows a sign of this lock that another tool made."""
        return self.name in queue.locks and not self.signed_by_us

    def refusal(self) -> LockHeld:
        """What to say where the lock is held by a tool that only makes the bookmark."""
        bookmark = lock_bookmark(self.name)
        made = self._jj.bookmark_made_at(bookmark)
        since = f" since {made}" if made else ""
        return LockHeld(
            f"the {self.name} lock is held{since}: the bookmark {bookmark} exists",
            hint=f"Wait for whoever made it. If that one is dead: jj bookmark delete {bookmark}",
        )

    def _take(self, stack: ExitStack, flock: FileLock) -> None:
        with explaining("make", flock.path.parent):
            flock.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            stack.enter_context(flock)
        except LockTimeout as fault:
            raise LockHeld(f"the {self.name} lock is held by another process: {fault}", hint=fault.hint) from fault

    def _make_sign(self, initialize: Callable[[], object] | None) -> None:
        deadline = self._clock.monotonic() + self._timeout_s
        stale = self.signed_by_us
        while True:
            me = proc.own_identity()
            with explaining("write", self._sign):
                self._sign.write_text(f"{me.pid} {me.started}", encoding="ascii")
            try:
                self._jj.create_bookmark(lock_bookmark(self.name), METADATA_REVISION)
            except JjFailed:
                self._overcome(stale=stale, initialize=initialize, deadline=deadline)
                stale = False
            else:
                return

    def _overcome(self, *, stale: bool, initialize: Callable[[], object] | None, deadline: float) -> None:
        """Remove what keeps the lock bookmark from being made, or say why it cannot be."""
        if not stale:
            # As long as the bookmark there is not ours, a crash of ours must not make it look so.
            self.forget_sign()
        queue = read_queue(self._jj.bookmarks(OUR_BOOKMARKS))
        if queue.metadata is None:
            if initialize is None:
                raise NotInitialized("jjq is not initialized here", hint="Queue something: jjq push REVSET")
            initialize()
        elif queue.metadata.conflicted:
            raise ConflictedBookmark(f"{METADATA} points to several revisions", hint="Mend it: jjq doctor --fix")
        elif self.name in queue.locks and (stale or self._is_old()):
            who = "a process" if stale else "another tool"
            self._note(f"recovered the {self.name} lock of {who} that died")
            self._jj.delete_bookmarks(lock_bookmark(self.name))
        elif self.name in queue.locks:
            if self._clock.monotonic() >= deadline:
                raise self.refusal()
            self._clock.sleep(_LOOK_AGAIN_S)

    def _is_old(self) -> bool:
        if self.name is LockName.RUN:
            return False  # a run takes as long as its check
        made = self._jj.bookmark_made_at(lock_bookmark(self.name))
        try:
            return made is not None and (self._clock.now() - from_rfc3339(made)).total_seconds() > _FOREIGN_LIFE_S
        except BadTime:
            return False

    def _remove_sign(self) -> None:
        try:
            self._jj.delete_bookmarks(lock_bookmark(self.name))
        except JjFailed as fault:
            self._note(f"the lock bookmark {lock_bookmark(self.name)} could not be deleted: {fault}")
        self.forget_sign()

    def forget_sign(self) -> None:
        """The lock bookmark is gone, or not ours."""
        with suppress(OSError):
            self._sign.unlink()
