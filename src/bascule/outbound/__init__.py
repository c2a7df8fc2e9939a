"""How Bascule reaches others: egress rules, references, credentials, TLS, and one HTTP client."""
