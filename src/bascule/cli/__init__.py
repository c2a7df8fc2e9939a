"""The command line: thin. It reads arguments, calls one function below, and prints."""
