"""A wrong bit anywhere in a file of data or of reports is found."""

from uuid import uuid4

from sparktrain.errors import DataError
from sparktrain.rundir.report_parts import CorruptPartError, lines_of, part_of, step_row, table_of_lines, table_of_part
from sparktrain.store.url import open_store
from tests.unit.datasets.data_files import Format, content, flipped, numbers, planned, put
from tests.unit.datasets.test_file_plans import each_format, source


@each_format
def test_no_wrong_bit_raises_anything_but_a_data_error(format: Format) -> None:
    """PyArrow aborts the process for some wrong bits of a Parquet footer, when it is asked for chunks of columns."""
    whole = content(format, numbers(20), group=8)
    step = 9 if format == "parquet" else 41
    refused = 0
    for place in range(3, len(whole), step):
        store = open_store(f"memory://{uuid4().hex}/data")
        put(store, "in/a", flipped(whole, place))
        try:
            planned(source(store, format))
        except DataError:
            refused += 1
    assert refused > 3


def test_any_changed_bit_is_found() -> None:
    rows = [step_row(n % 5, 1, 0, n // 5, n + 0.5, {"loss": n * 0.1, "accuracy": n * 0.3}) for n in range(20)]
    wanted = table_of_lines(lines_of(rows))
    part = part_of(wanted)
    found = 0
    for place in range(len(part)):
        changed = bytearray(part)
        changed[place] ^= 1 << place % 8
        try:
            assert table_of_part(bytes(changed)).equals(wanted), f"byte {place} changes a row, and nothing finds it"
        except CorruptPartError:
            found += 1
    assert found > len(part) / 2
