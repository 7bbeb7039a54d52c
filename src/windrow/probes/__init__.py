"""What a long-running program shows of itself: whether it is well, and what it has counted.

`metrics` and `health` are pure values, `pages` decides who may see what, `http` is the only door to a socket.
"""
