"""A real PostgreSQL for tests: one server per run, one database per test."""
