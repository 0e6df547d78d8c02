"""What the test suites of other libraries check, said anew for ours."""
