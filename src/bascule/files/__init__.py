"""Records in files: which files count, what they hold, and who owns what."""

from bascule.files.scan import Broken, Loaded, Scan, scan_directory, scan_file

__all__ = ["Broken", "Loaded", "Scan", "scan_directory", "scan_file"]
