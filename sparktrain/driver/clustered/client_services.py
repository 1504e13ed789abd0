"""What a client serves of a run that it does not drive: its TensorBoard and its page, to browsers of this machine."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from sparktrain.base.clock import SystemClock
from sparktrain.base.wings import from_wing
from sparktrain.display.progress import Display
from sparktrain.driver.prepare.checked_call import Observers
from sparktrain.runs.additions.stop_requests import ask_stop
from sparktrain.runs.locate import RunLocation
from sparktrain.state.run_machine import TIMEOUT_GRACE_S


@contextmanager
def client_services(place: RunLocation, observers: Observers, display: Display) -> Iterator[None]:
    """Serve what the call asks for, until the context ends, and show the URLs. Raises SpecError, OSError."""
    store = place.store
    layout = place.layout

    def stop(trial: int | None) -> None:
        ask_stop(store, layout, "stopped on its page", trial=trial, grace_s=TIMEOUT_GRACE_S)

    with ExitStack() as stack:
        if observers.tensorboard:
            feed = from_wing("BoardFeed")(place, SystemClock())
            board = stack.enter_context(from_wing("Board").start(store, layout.path, feed=feed.follow))
            display.print_line(f"{layout.path}: TensorBoard: {board.url}")
        if observers.page:
            start = from_wing("LivePage").start
            page = stack.enter_context(start(place.where, bind="127.0.0.1", host="localhost", on_stop=stop))
            display.print_line(f"{layout.path}: page: {page.url}")
        yield
