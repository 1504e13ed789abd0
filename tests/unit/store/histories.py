"""Actors that take turns at each operation of a store.

Every actor runs the product's own functions in a separate thread, and waits at a gate before each operation of the
store. A crash between two operations is an actor without further turns; a zombie is an actor with turns after its
replacement has started.
"""

import threading
from collections.abc import Callable
from typing import Any

from tests.unit.store.gated import Crash, GatedStore, MemoryStore, drop, fault

DEADLINE_S = 30.0


class Actor:
    """A function in a thread that advances by one operation at each `step`."""

    def __init__(self, work: "Callable[[Actor], None]", files: MemoryStore) -> None:
        self.over = False
        self.problem: BaseException | None = None
        self.next = ""
        """The name of the next operation, before which the actor waits."""
        self._files = files
        self._fault = ""
        self._turn, self._waits = threading.Lock(), threading.Lock()  # each is held except during a handover
        self._turn.acquire()
        self._waits.acquire()
        self.store = GatedStore(files, self.gate)
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()
        self._await()

    def step(self, fault: str = "") -> None:
        """Execute the next operation; with a fault before or after it, with torn data, or with a crash before it."""
        if not self.over:
            self._fault = fault
            self._turn.release()
            self._await()

    def crash(self) -> None:
        """End the actor without another operation."""
        while not self.over:
            self.step("crash")
        self._thread.join(DEADLINE_S)

    def gate(self, name: str, effect: Callable[[], Any]) -> Any:
        self.next = name
        self._waits.release()
        assert self._turn.acquire(timeout=DEADLINE_S)
        kind, self._fault = self._fault, ""
        if kind == "crash":
            raise Crash
        if kind == "before":
            raise fault()
        self._files.torn = kind == "torn"
        result = effect()
        self._files.torn = False
        if kind == "after":
            drop(result)
            raise fault()
        return result

    def _await(self) -> None:
        assert self._waits.acquire(timeout=DEADLINE_S), "an actor does not reach its next operation"
        if self.problem is not None:
            raise self.problem

    def _run(self, work: "Callable[[Actor], None]") -> None:
        try:
            work(self)
        except (Crash, OSError):
            pass
        except BaseException as problem:
            self.problem = problem
        self.over = True
        self._waits.release()
