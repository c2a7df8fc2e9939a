"""The admin page: files that ``make web`` builds, served to whoever asks."""
