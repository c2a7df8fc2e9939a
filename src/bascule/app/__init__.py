"""One composition root per process, and the settings they read.

Below: everything that is joined together here. Above: the command line.
"""
