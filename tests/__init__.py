"""The suites. A package, so that they can share builders and fakes."""
