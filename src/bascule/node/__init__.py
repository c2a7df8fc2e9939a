"""The node, or data plane: follows the registry, holds connections, owns no truth."""
