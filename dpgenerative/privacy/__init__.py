"""Private releases: gradients, clipping, noise, sampling, accounting, and their plan.

The first five do not import each other; `plan` joins them.
"""
