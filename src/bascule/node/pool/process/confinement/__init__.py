"""What the warden does to a server between its fork and its exec. Standard library only."""
