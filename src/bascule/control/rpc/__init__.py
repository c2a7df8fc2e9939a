"""The registry over gRPC: the port, who may use it, and what each service does.

Only what opens the port imports this; a process without one does not load grpc.
"""
