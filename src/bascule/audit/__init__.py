"""What happened, for those who look later: metrics, and the records of calls."""
