"""What an executor may refuse, and how a child may fail its job.

PanqueueError
├── BadPolicy          a policy that makes no sense, or names what is not there
├── PolicyRefused      this machine cannot enforce what the policy asks for
├── BadHandler         a handler that no other process can find
└── ChildFailed        the job failed, not the worker
    ├── StartFailed    no child came up; the next start waits a little longer
    ├── ChildDied      it ended in the middle of the job
    ├── ChildBabbled   it said what the protocol does not know, or too much
    └── HandlerFailed  the handler raised; the message is the handler's
"""

from __future__ import annotations

from queueyard.panqueue.errors import PanqueueError


class BadPolicy(PanqueueError):
    pass


class PolicyRefused(PanqueueError):
    pass


class BadHandler(PanqueueError):
    pass


class ChildFailed(PanqueueError):
    pass


class StartFailed(ChildFailed):
    pass


class ChildDied(ChildFailed):
    pass


class ChildBabbled(ChildFailed):
    pass


class HandlerFailed(ChildFailed):
    pass
