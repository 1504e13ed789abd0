"""What tests and benchmarks share: daemons of Hadoop, contract suites, drills, and ways to look at processes."""
