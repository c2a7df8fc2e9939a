"""Records in files: which files count, what they hold, and who owns what.

Below: ``bascule.wire.records`` reads each one. Above: the control plane loads a directory,
``Bridge.open`` takes one, the command line explains one.
"""

from bascule.files.scan import Broken, Loaded, Scan, scan_directory, scan_file

__all__ = ["Broken", "Loaded", "Scan", "scan_directory", "scan_file"]
