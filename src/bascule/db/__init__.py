"""Databases and private files: the plumbing that others share, and none of their meaning."""
