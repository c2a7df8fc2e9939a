"""What every HTTP face shares: who is asking, what is refused, and what an answer looks like.

Nothing here knows what a route does.
"""
