"""The admin page in a real browser.

A package, unlike the folders beside it, so that one browser and one process serve all of its tests
on a worker and end before other tests count processes.
"""
