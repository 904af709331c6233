"""A work dir: its lock, the runs that used it before, the user's code in it, and where a run resumes."""
