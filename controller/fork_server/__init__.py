"""Child processes that have imported what they need: forked from one that has, or started."""
