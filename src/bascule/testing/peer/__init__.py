"""The inside of the scripted MCP server, run as its own process by ``stdio_server.py``.

A few quick modules of the standard library and nothing else of Bascule: it starts in some 20 ms,
and what it says about the bridge is not said by the bridge's own code. Read upwards: ``frames``
(the loop and the wire), ``protocol`` (what a good server answers), ``behaviours`` (what tools
do), ``faults`` (what no server should do).
"""
