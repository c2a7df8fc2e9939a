"""WASM guests: programs that reach models and tools through host functions, under a task."""
