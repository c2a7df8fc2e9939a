"""One composition root per process, and the settings they read."""
