"""HTTP/1.1 on httptools: strict, and exact about what has left and what has come back."""
