"""How fast, how small, how flat: one file per subject, one table of all.

    python -m benchmarks                    everything, a few minutes
    python -m benchmarks bus crew           some subjects
    python -m benchmarks --json

Speed is never a test: a slow computer must not fail a build. So every value is a median, or a ratio against bare work
done in turns with it in the same run, and a target that is missed says "over" and no more.
"""
