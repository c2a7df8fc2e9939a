"""Who is asking: tokens, the identity each stands for, and where they are kept."""
