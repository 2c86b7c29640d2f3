"""A handler by name: what the parent tells a child, and how the child finds the function again.

The top of the handler's code is loaded from its file, because a confined child may not list the folders that Python
would look through.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from queueyard.panqueue.executors.errors import BadHandler

if TYPE_CHECKING:
    from collections.abc import Callable

#: what a program is called when it is loaded for a handler in it, so that its main part does not run
MAIN = "__panqueue_main__"


class Handler(NamedTuple):
    """Where a handler stands."""

    module: str
    #: the file of the module, or of the package that it is in
    file: str
    #: its name within the module
    name: str

    @property
    def code(self) -> str:
        """What has to be readable for it: the file, or the whole package."""
        path = Path(self.file)
        return str(path.parent if path.name == "__init__.py" else path)


def handler_named(handler: Callable[..., Any]) -> Handler:
    """Where a function stands. BadHandler if another process could not find it there."""
    # A task is run by one of its methods; what can be found by name is its function.
    function = getattr(getattr(handler, "__self__", None), "function", handler)
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", "")
    top = sys.modules.get((module or "").partition(".")[0])
    file = getattr(top, "__file__", None)
    if module is None or file is None or not name or "<" in name:
        raise BadHandler(
            f"another process cannot find the handler {name or handler!r}",
            hint="Define it with def at the top of a module, not within a function and not as a lambda.",
        )
    return Handler(MAIN if module == "__main__" else module, str(Path(file).absolute()), name)


def load(handler: Handler) -> Any:
    """The function or task, in a child. Whatever its code raises; BadHandler if it is not there."""
    top = handler.module.partition(".")[0]
    if top not in sys.modules:
        folders = [handler.code] if Path(handler.file).name == "__init__.py" else None
        spec = spec_from_file_location(top, handler.file, submodule_search_locations=folders)
        if spec is None or spec.loader is None:
            raise BadHandler(f"{handler.file} is no Python file")
        module = module_from_spec(spec)
        sys.modules[top] = module
        spec.loader.exec_module(module)
    found: Any = import_module(handler.module)
    for step in handler.name.split("."):
        found = getattr(found, step, None)
    if found is None:
        raise BadHandler(f"{handler.file} has no {handler.name}", hint="Define it at the top of the module.")
    return found
