"""Local servers as processes: how one is started, watched over and ended."""
