"""What a report shows of a run, as plain data: pure functions from records, reports and the plan to structs."""
